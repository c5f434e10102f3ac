// Models whose layers are divided among several devices, three where they are emulated: their bits are those of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "harness/core/terminal.h"
#include "harness/device/layer_placement.h"
#include "harness/device/open_device.h"
#include "harness/storage/device_tiers.h"
#include "harness/storage/hierarchy.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/decoding.h"
#include "tests/support/device_model.h"
#include "tests/support/golden_model.h"
#include "tests/support/model_answers.h"
#include "tests/support/offloaded_model.h"

namespace kvarena::device {
namespace {

using nlohmann::json;
using testing::golden_model;
using Devices = std::vector<int64_t>;

class DeviceSplit : public ::testing::Test {
 protected:
  void SetUp() override {
    if (emulated_cuda::here()) {
      ASSERT_EQ(kernels::cuda_devices(), 3) << "set KVARENA_EMULATED_DEVICES";
    } else if (kernels::cuda_devices() < 2) {
      GTEST_SKIP() << "there is one device";
    }
  }
};
/// Three devices with memory as the tests say, and a count of copies.
class EmulatedSplit : public DeviceSplit {
 protected:
  void SetUp() override {
    if (!emulated_cuda::here()) GTEST_SKIP() << emulated_cuda::kOnlyHere;
    DeviceSplit::SetUp();
  }
};
class DeviceSplitOf : public DeviceSplit, public ::testing::WithParamInterface<const char*> {};

/// The tiny model with six layers: several for each of three devices.
ModelConfig six_layers() {
  ModelConfig config = testing::tiny_config();
  config.layers = 6;
  return config;
}

testing::RandomCheckpoint weights_of(const ModelConfig& config) { return {testing::llama_tensors(config), 1}; }

/// Divisions of so many layers among two devices, and among three where there are as many of both, even and uneven, in
/// several orders of devices.
std::vector<Devices> divisions(int64_t layers) {
  const int64_t last = std::min<int64_t>(kernels::cuda_devices(), 3) - 1;
  std::vector<Devices> all(layers > 2 ? 2 : 1);
  for (int64_t layer = 0; layer < layers; ++layer) {
    all[0].push_back(layer < layers / 2 ? last : 0);
    if (layers > 2) all[1].push_back(layer == 0 ? 1 : layer < layers - 1 ? 0 : last);
  }
  return all;
}

std::vector<int32_t> prompt_of(const testing::GoldenModel& golden) {
  return golden.fixture["prompt"].get<std::vector<int32_t>>();
}

Transformer offloaded(const testing::GoldenModel& golden, const Devices& devices) {
  Transformer model = golden.transformer(kBf16);
  model.offload_to(std::make_unique<DeviceOffload>(DeviceModel(golden.config, golden.checkpoint(), kBf16, devices),
                                                   int64_t{1} << 30));
  return model;
}

/// A prompt at once and in chunks, then two sequences decoding beside a verification run, and steps that are replayed.
std::vector<float> answers(DeviceModel& model, std::span<const int32_t> prompt) {
  std::vector<float> all;
  const auto run = [&](std::span<const DevicePass> passes) {
    const std::span<const float> logits = model.download(model.forward(passes));
    all.insert(all.end(), logits.begin(), logits.end());
  };
  DeviceCache whole = model.make_cache(), chunked = model.make_cache(), far = model.make_cache(Placement::host);
  for (DeviceCache* cache : {&whole, &far}) {
    const DevicePass first{.tokens = prompt, .cache = cache, .logits = LogitsRows::all};
    run({&first, 1});
  }
  for (size_t done = 0; done < prompt.size(); done += 5) {
    const DevicePass chunk{.tokens = prompt.subspan(done, std::min<size_t>(5, prompt.size() - done)),
                           .cache = &chunked,
                           .logits = LogitsRows::all};
    run({&chunk, 1});
  }
  for (const int32_t token : prompt.first(3)) {
    const DevicePass passes[] = {{.tokens = {&token, 1}, .cache = &whole},
                                 {.tokens = prompt.subspan(2, 4), .cache = &chunked, .logits = LogitsRows::all},
                                 {.tokens = {&token, 1}, .cache = &far}};
    run(passes);
  }
  for (const int32_t token : prompt.first(4)) {
    const DevicePass step{.tokens = {&token, 1}, .cache = &whole};
    run({&step, 1});
  }
  return all;
}

TEST_P(DeviceSplitOf, AnyDivisionOfLayersHasTheBitsOfOneDevice) {
  const testing::GoldenModel golden = golden_model(GetParam());
  DeviceModel alone(golden.config, golden.checkpoint(), kBf16);
  const std::vector<float> expected = answers(alone, prompt_of(golden));
  for (const Devices& devices : divisions(golden.config.layers)) {
    SCOPED_TRACE(::testing::PrintToString(devices));
    DeviceModel split(golden.config, golden.checkpoint(), kBf16, devices);
    expect_same_bits(answers(split, prompt_of(golden)), expected, "split");
    EXPECT_EQ(split.replayed(), alone.replayed());
  }
}

/// Trees, exits in front of a device's layers, recomputed prompts and what is read of the weights as well.
TEST_P(DeviceSplitOf, EveryKindOfPassHasTheBitsOfOneDevice) {
  const testing::GoldenModel golden = golden_model(GetParam());
  Transformer alone = offloaded(golden, {});
  const std::vector<float> expected = testing::all_answers(alone, prompt_of(golden));
  for (const Devices& devices : divisions(golden.config.layers)) {
    SCOPED_TRACE(::testing::PrintToString(devices));
    Transformer split = offloaded(golden, devices);
    expect_same_bits(testing::all_answers(split, prompt_of(golden)), expected, "split");
  }
}

/// Beside matrices there are vectors in float32 and padded rows, which weigh in models as small as these.
TEST_P(DeviceSplitOf, LayersAreDividedByTheBytesThatTheyTake) {
  const testing::GoldenModel golden = golden_model(GetParam());
  const ModelBytes model = bytes_of(golden.config, golden.checkpoint(), kBf16);
  double expected = static_cast<double>(model.embedding + (model.tied ? 0 : model.head));
  for (const ModelBytes::Layer& layer : model.layers) expected += static_cast<double>(layer.weights);
  const DeviceModel made(golden.config, golden.checkpoint(), kBf16);
  EXPECT_NEAR(static_cast<double>(made.weight_bytes()) / expected, 1, 0.15);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceSplitOf,
                         ::testing::Values("llama31", "llama_biased", "mistral", "qwen2", "qwen3_moe", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(DeviceSplit, MethodsAndVerificationDecodeWhatTheyDecodeOverOneDevice) {
  const ModelConfig config = six_layers();
  const testing::RandomCheckpoint checkpoint = weights_of(config);
  const std::vector<int32_t> prompt = testing::tiny_prompt(90);
  const auto offloaded = [&](const Devices& devices) {
    Transformer model(config, checkpoint, kBf16);
    model.offload_to(
        std::make_unique<DeviceOffload>(DeviceModel(config, checkpoint, kBf16, devices), int64_t{1} << 30));
    return model;
  };
  Transformer alone = offloaded({});
  for (const Devices& devices : divisions(config.layers)) {
    Transformer split = offloaded(devices);
    for (const json& method :
         {json{{"name", "full"}}, json{{"name", "snapkv"}, {"keep", 0.5}}, json{{"name", "h2o"}, {"keep", 0.5}},
          json{{"name", "quest"}, {"keep", 0.5}}, json{{"name", "kivi"}, {"group_size", 16}, {"residual_length", 16}},
          json{{"name", "gear"}, {"buffer", 16}, {"group_size", 16}}, json{{"name", "minicache"}},
          json{{"name", "turboquant"}}, json{{"name", "early_exit"}, {"draft_length", 3}, {"layers", 0.4}},
          json{{"name", "vericache"}, {"draft_length", 3}, {"drafter", {{"name", "knorm"}, {"keep", 0.5}}}}}) {
      SCOPED_TRACE(method.dump() + " on " + ::testing::PrintToString(devices));
      const auto answer = [&](Transformer& model) {
        const Needs needs = make_method(method, "test")->needs();
        return testing::decode(model, prefill(model, prompt, needs, 7), method, 8);
      };
      const testing::Decoded expected = answer(alone), got = answer(split);
      EXPECT_EQ(got.failure, "");
      EXPECT_EQ(got.tokens, expected.tokens);
      EXPECT_EQ(got.logits, expected.logits);
      EXPECT_EQ(got.resident_bytes, expected.resident_bytes);
    }
  }
}

TEST_F(EmulatedSplit, RowsGoFromDeviceToDeviceOnceAPass) {
  const ModelConfig config = six_layers();
  for (const int64_t count : {1, 2, 3}) {
    Devices devices;
    for (int64_t layer = 0; layer < config.layers; ++layer) devices.push_back(std::min(layer, count - 1));
    DeviceModel model(config, weights_of(config), kBf16, devices);
    DeviceCache cache = model.make_cache(Placement::device, 64);
    for (const int32_t token : testing::tiny_prompt(12)) {
      const long before = emulated_cuda::copies_between_devices();
      const DevicePass pass{.tokens = {&token, 1}, .cache = &cache};
      (void)model.download(model.forward({&pass, 1}));
      EXPECT_EQ(emulated_cuda::copies_between_devices() - before, count - 1);
    }
    EXPECT_GT(model.replayed(), 0);
  }
}

TEST_F(EmulatedSplit, WeightsAndEntriesAreWithTheirLayers) {
  const ModelConfig config = testing::tiny_config();
  const auto free_on = [](int64_t device) {
    const kernels::CudaDeviceScope there(device);
    return kernels::cuda_free_bytes();
  };
  const int64_t before[] = {free_on(0), free_on(1), free_on(2)};
  const DeviceModel model(config, weights_of(config), kBf16, {2, 2, 1});
  EXPECT_EQ(free_on(0), before[0]);
  EXPECT_LT(free_on(2), before[2] - config.vocab_size * config.hidden_size * 2);  // the embedding
  EXPECT_LT(free_on(1), before[1] - config.vocab_size * config.hidden_size * 2);  // the same as the head
  const DeviceCache cache = model.make_cache(Placement::device, 64);
  const DeviceBytes bytes = cache.bytes_by_device();
  ASSERT_EQ(bytes.size(), 2);
  EXPECT_EQ(bytes.at(2), 2 * bytes.at(1));
  EXPECT_EQ(cache.bytes(), 3 * bytes.at(1));
}

/// Leaves so many bytes free on a device while it lives.
class Filled {
 public:
  Filled(int64_t device, int64_t free_bytes) {
    const kernels::CudaDeviceScope there(device);
    memory_.reserve(kernels::cuda_free_bytes() - free_bytes);
  }

 private:
  kernels::CudaBuffer memory_;
};

class OpenDevice : public EmulatedSplit {
 protected:
  /// Opens the model and computes a prompt; returns what is said on standard error, or the refusal.
  std::string open(const Devices& devices) {
    ::testing::internal::CaptureStderr();
    Transformer model(config_, checkpoint_, kBf16);
    try {
      model.offload_to(open_device("the test", config_, checkpoint_, kBf16, devices));
      KvCache cache = model.make_cache();
      logits_ = fed(model, cache, testing::tiny_prompt(20));
    } catch (const UserError& error) {
      (void)::testing::internal::GetCapturedStderr();
      return error.what();
    }
    return ::testing::internal::GetCapturedStderr();
  }

  ModelConfig config_ = six_layers();
  testing::RandomCheckpoint checkpoint_ = weights_of(config_);
  std::vector<float> logits_;
};

TEST_F(OpenDevice, TakesAsManyDevicesAsAModelNeedsOrThoseThatAreNamed) {
  EXPECT_EQ(open({}), "");
  const std::vector<float> expected = logits_;
  EXPECT_EQ(open({1}), "");
  EXPECT_EQ(logits_, expected);
  EXPECT_EQ(open({2, 0, 1}), "note: the test: layers 0 to 1 on device 2, 2 to 3 on device 0, 4 to 5 on device 1\n");
  EXPECT_EQ(logits_, expected);
  const int64_t cache = config_.max_position * config_.layers * config_.kv_heads * config_.head_dim * 4;
  const Filled first(0, cache), second(1, cache);  // in 85% of which the entries do not fit
  EXPECT_EQ(open({}), "note: the test: layers 0 to 2 on device 0, 3 to 5 on device 1\n");
  EXPECT_EQ(logits_, expected);
}

TEST_F(OpenDevice, ADeviceWithMoreFreeMemoryGetsMoreLayers) {
  EXPECT_EQ(open({}), "");
  const std::vector<float> expected = logits_;
  const ModelBytes model = bytes_of(config_, checkpoint_, kBf16);
  // Room for one layer with a cache of many tokens on device 0, for five on device 1.
  const int64_t cache = model.layers.front().entry * config_.max_position * 16;
  const int64_t layer = model.layers.front().weights + cache * 100 / 85;
  const Filled first(0, model.embedding + layer), second(1, model.embedding + 5 * layer);
  EXPECT_EQ(open({0, 1}), "note: the test: layers 0 to 0 on device 0, 1 to 5 on device 1\n");
  EXPECT_EQ(logits_, expected);
  EXPECT_EQ(open({1, 0}), "note: the test: layers 0 to 4 on device 1, 5 to 5 on device 0\n");
  EXPECT_EQ(logits_, expected);
}

TEST_F(OpenDevice, GivesRunsAHostTierThatDevicesCopyFrom) {
  const auto ledger = std::make_shared<MemoryLedger>();
  const storage::Hierarchy tiers({{.tier = Tier::host, .capacity_bytes = 1000, .memory = pinned_memory}});
  const std::shared_ptr<storage::Block> block = tiers.storage(Tier::host).allocate(ledger, 600);
  EXPECT_NE(storage::placed(block)->address(), nullptr);
  EXPECT_EQ(ledger->current(Tier::host), 600);
  EXPECT_THROW((void)tiers.storage(Tier::host).allocate(ledger, 600), storage::TierFull);
}

TEST_F(OpenDevice, SaysWhatIsWrong) {
  EXPECT_EQ(open({3}).rfind("the test: found device 3, expected each of devices 0 to 2 once", 0), 0) << open({3});
  EXPECT_EQ(open({0, 0}).rfind("the test: found device 0 twice", 0), 0) << open({0, 0});
  const Filled first(0, 1 << 16), second(1, 1 << 16), third(2, 1 << 16);
  const std::string refused = open({});
  const ModelBytes model = bytes_of(config_, checkpoint_, kBf16);
  int64_t weights = model.embedding;  // the same as the head
  for (const ModelBytes::Layer& layer : model.layers) weights += layer.weights;
  EXPECT_EQ(refused.rfind("the test: found " + bytes_text(weights) +
                              " of weights, 63.5 KiB free on device 0, 63.5 KiB "
                              "free on device 1, 63.5 KiB free on device 2",
                          0),
            0)
      << refused;
}

}  // namespace
}  // namespace kvarena::device
