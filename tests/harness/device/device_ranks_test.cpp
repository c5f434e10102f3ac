// A model whose matrices are shared by the devices of several ranks (emulated here, the ranks threads of this program):
// its bits are those of one device.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>

#include "harness/device/device_offload.h"
#include "harness/device/ranks/device_rank.h"
#include "harness/device/ranks/nccl_exchange.h"
#include "tests/support/cuda/emulated_cuda.h"
#include "tests/support/cuda/emulated_nccl.h"
#include "tests/support/decoding.h"
#include "tests/support/golden_model.h"
#include "tests/support/rank_answers.h"
#include "tests/support/rank_threads.h"

namespace kvarena::device {
namespace {

using kernels::DType;
using nlohmann::json;
using testing::golden_model;
using testing::RankThreads;

constexpr TransformerOptions kHalf{.weights = DType::bf16, .cache = DType::bf16};

/// Whether every rank has a device of its own, which NCCL wants.
enum class Devices { shared, own };

/// A model at rank 0, and the other ranks with their devices.
class Ranks {
 public:
  Ranks(const testing::GoldenModel& golden, int64_t ranks, Devices devices, const TransformerOptions& options = kHalf)
      : others_(
            ranks, channels_, golden.config, options.weights, [&golden] { return golden.checkpoint(); },
            [&golden, devices, options](const Share& share) {
              if (devices == Devices::own) kernels::cuda_use_device(share.rank);
              return std::make_unique<DeviceRank>(golden.config, golden.checkpoint(), options.weights, share);
            }),
        driver_(std::make_unique<Transformer>(golden.config, golden.checkpoint(), options,
                                              channels_({.rank = 0, .ranks = ranks}))) {
    emulated_nccl_wait_by(kernels::cuda_synchronize);
  }
  [[nodiscard]] Transformer& driver() { return *driver_; }
  /// Messages from the driver to rank 1 so far.
  [[nodiscard]] int64_t ordered() const { return room_->sent(0, 1); }
  /// Sends the others home; how they ended.
  [[nodiscard]] std::vector<std::string> end() {
    driver_.reset();
    others_.join();
    return others_.failures();
  }

 private:
  std::shared_ptr<testing::Mailroom> room_ = std::make_shared<testing::Mailroom>();
  testing::ChannelMaker channels_ = testing::memory_channels(room_);
  RankThreads<std::function<testing::RandomCheckpoint()>> others_;
  std::unique_ptr<Transformer> driver_;
};

std::vector<int32_t> prompt_of(const testing::GoldenModel& golden) {
  return golden.fixture["prompt"].get<std::vector<int32_t>>();
}

/// A prompt at once and in chunks, then two sequences decoding beside a verification run.
std::vector<float> answers(DeviceModel& model, std::span<const int32_t> prompt) {
  std::vector<float> all;
  const auto run = [&](std::span<const DevicePass> passes) {
    const std::span<const float> logits = model.download(model.forward(passes));
    all.insert(all.end(), logits.begin(), logits.end());
  };
  DeviceCache whole = model.make_cache(), chunked = model.make_cache();
  const DevicePass first{.tokens = prompt, .cache = &whole, .logits = LogitsRows::all};
  run({&first, 1});
  for (size_t done = 0; done < prompt.size(); done += 5) {
    const DevicePass chunk{.tokens = prompt.subspan(done, std::min<size_t>(5, prompt.size() - done)),
                           .cache = &chunked,
                           .logits = LogitsRows::all};
    run({&chunk, 1});
  }
  for (const int32_t token : prompt.first(3)) {
    const DevicePass passes[] = {{.tokens = {&token, 1}, .cache = &whole},
                                 {.tokens = prompt.subspan(2, 4), .cache = &chunked, .logits = LogitsRows::all}};
    run(passes);
  }
  return all;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class DeviceRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceRanks, AnswersOfTwoAndThreeHaveTheBitsOfOneHoweverRowsTravel) {
  const testing::GoldenModel golden = golden_model(GetParam());
  const std::vector<int32_t> prompt = prompt_of(golden);
  DeviceModel alone(golden.config, golden.checkpoint(), kHalf);
  const std::vector<float> expected = answers(alone, prompt);
  for (const int64_t count : {2, 3}) {
    for (const Devices devices : {Devices::shared, Devices::own}) {
      SCOPED_TRACE(std::to_string(count) + (devices == Devices::own ? " with devices of their own" : ""));
      const long before = emulated_nccl_numbers();
      Ranks ranks(golden, count, devices);
      {
        DeviceModel split(golden.config, golden.checkpoint(), kHalf, ranks.driver().ranks());
        EXPECT_LT(split.weight_bytes(), alone.weight_bytes());
        EXPECT_TRUE(same_bits(answers(split, prompt), expected));
        if (devices == Devices::own) {
          EXPECT_EQ(split.fallback_reason(), "");
          EXPECT_GT(emulated_nccl_numbers(), before);
        } else {
          EXPECT_NE(split.fallback_reason().find("ranks 0 and 1 share the device"), std::string::npos)
              << split.fallback_reason();
          EXPECT_EQ(emulated_nccl_numbers(), before);
        }
      }
      for (const std::string& failure : ranks.end()) EXPECT_EQ(failure, "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceRanks,
                         ::testing::Values("llama31", "llama_biased", "qwen2", "qwen3_moe", "deepseek_v2",
                                           "deepseek_v3"),
                         [](const auto& info) { return info.param; });

int64_t routers(const ModelConfig& config, int64_t layers) {
  int64_t count = 0;
  for (int64_t layer = 0; layer < layers; ++layer) count += config.is_sparse_layer(layer) ? 1 : 0;
  return count;
}

/// Rows go by NCCL here, so that all messages are orders.
TEST(DeviceRanks, HearOfAPassInOneMessageAndInOneMoreForEachRouter) {
  for (const char* name : {"llama31", "deepseek_v3", "qwen3_moe_mixed"}) {
    SCOPED_TRACE(name);
    const testing::GoldenModel golden = golden_model(name);
    Ranks ranks(golden, 2, Devices::own);
    DeviceModel split(golden.config, golden.checkpoint(), kHalf, ranks.driver().ranks());
    DeviceCache cache = split.make_cache();
    for (const int32_t token : prompt_of(golden)) {
      const DevicePass pass{.tokens = {&token, 1}, .cache = &cache};
      for (const int64_t layers : {golden.config.layers, int64_t{1}}) {
        const int64_t before = ranks.ordered();
        (void)split.download(split.forward({&pass, 1}, Download::nothing, layers));
        EXPECT_EQ(ranks.ordered() - before, 1 + routers(golden.config, layers));
        if (layers == 1) cache.truncate(cache.length() - 1);
      }
    }
  }
}

TEST(DeviceRanks, SessionsOverThemDecodeWhatTheyDecodeOverOneDevice) {
  const testing::GoldenModel golden = golden_model("llama31");
  const json verified = {{"name", "vericache"}, {"draft_length", 3}, {"drafter", {{"name", "knorm"}, {"keep", 0.5}}}};
  Ranks ranks(golden, 2, Devices::own);
  Transformer alone = golden.transformer(kHalf);
  alone.offload_to(std::make_unique<DeviceOffload>(DeviceModel(golden.config, golden.checkpoint(), kHalf), 1 << 30));
  ranks.driver().offload_to(std::make_unique<DeviceOffload>(
      DeviceModel(golden.config, golden.checkpoint(), kHalf, ranks.driver().ranks()), 1 << 30));
  const json first_layer = {{"name", "early_exit"}, {"draft_length", 3}, {"layers", 0.4}};
  for (const json& method : {json{{"name", "full"}}, verified, first_layer, json{{"name", "quest"}, {"keep", 0.5}}}) {
    SCOPED_TRACE(method.dump());
    const auto answer = [&](Transformer& model) {
      const Needs needs = make_method(method, "test")->needs();
      return testing::decode(model, prefill(model, prompt_of(golden), needs, 7), method, 8);
    };
    const testing::Decoded expected = answer(alone), got = answer(ranks.driver());
    EXPECT_EQ(got.failure, "");
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_EQ(got.logits, expected.logits);
  }
  EXPECT_EQ(ranks.end()[1], "");
}

TEST(DeviceRanks, EveryKindOfPassHasTheBitsOfOneDevice) {
  for (const char* name : {"llama31", "qwen3_moe", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    const testing::GoldenModel golden = golden_model(name);
    Ranks ranks(golden, 2, Devices::own);
    Transformer alone = golden.transformer(kHalf);
    alone.offload_to(std::make_unique<DeviceOffload>(DeviceModel(golden.config, golden.checkpoint(), kHalf), 1 << 30));
    ranks.driver().offload_to(std::make_unique<DeviceOffload>(
        DeviceModel(golden.config, golden.checkpoint(), kHalf, ranks.driver().ranks()), 1 << 30));
    EXPECT_TRUE(same_bits(testing::all_answers(ranks.driver(), prompt_of(golden)),
                          testing::all_answers(alone, prompt_of(golden))));
    EXPECT_EQ(ranks.end()[1], "");
  }
}

/// A method that fails in the second layer, whose attention is the host's.
class Failing final : public AttentionHooks {
 public:
  void after_attention(int64_t layer, LayerCache& /*cache*/, const LayerQueries& /*queries*/,
                       const float* /*lse*/) override {
    if (layer == 1) throw UserError("enough");
  }
};

TEST(DeviceRanks, StayOfUseWhenAPassIsGivenUpHalfWay) {
  const testing::GoldenModel golden = golden_model("llama31");
  const std::vector<int32_t> prompt = prompt_of(golden);
  Ranks ranks(golden, 2, Devices::own);
  ranks.driver().offload_to(std::make_unique<DeviceOffload>(
      DeviceModel(golden.config, golden.checkpoint(), kHalf, ranks.driver().ranks()), 1 << 30));
  std::vector<std::vector<float>> answers;
  for (const bool fails : {false, true, false}) {
    Failing hooks;
    KvCache cache = ranks.driver().make_cache();
    const SequencePass pass{.tokens = prompt, .cache = &cache, .hooks = fails ? &hooks : nullptr};
    if (fails) {
      EXPECT_THROW((void)ranks.driver().forward({&pass, 1}), UserError);
      EXPECT_EQ(ranks.driver().lost(), "");
    } else {
      const std::span<const float> logits = ranks.driver().forward({&pass, 1});
      answers.emplace_back(logits.begin(), logits.end());
    }
  }
  EXPECT_EQ(answers.at(0), answers.at(1));
}

/// Computes some parts and then no more.
class Mortal final : public RankDevice {
 public:
  Mortal(std::unique_ptr<RankDevice> device, int64_t parts) : device_(std::move(device)), left_(parts) {}
  void meet(RankChannel& channel) override { device_->meet(channel); }
  void compute(int64_t part, int64_t rows) override {
    if (left_-- == 0) throw UserError("out of order");
    device_->compute(part, rows);
  }

 private:
  std::unique_ptr<RankDevice> device_;
  int64_t left_;
};

TEST(DeviceRanks, OneThatIsLostEndsEveryRequest) {
  const testing::GoldenModel golden = golden_model("llama31");
  const std::vector<int32_t> prompt = prompt_of(golden);
  const testing::ChannelMaker channels = testing::memory_channels();
  RankThreads others(
      2, channels, golden.config, DType::bf16, [&] { return golden.checkpoint(); },
      [&](const Share& share) {
        return std::make_unique<Mortal>(
            std::make_unique<DeviceRank>(golden.config, golden.checkpoint(), DType::bf16, share), 5);
      });
  Transformer driver(golden.config, golden.checkpoint(), kHalf, channels({.rank = 0, .ranks = 2}));
  driver.offload_to(
      std::make_unique<DeviceOffload>(DeviceModel(golden.config, golden.checkpoint(), kHalf, driver.ranks()), 1 << 30));
  for (int attempt = 0; attempt < 2; ++attempt) {
    KvCache cache = driver.make_cache();
    const SequencePass pass{.tokens = prompt, .cache = &cache};
    EXPECT_THROW((void)driver.forward({&pass, 1}), UserError);
    EXPECT_EQ(driver.lost(), "rank 1 is gone");
  }
  others.join();
  EXPECT_EQ(others.failures()[1], "out of order");
}

TEST(Nccl, IsSaidToBeMissingWhereItIs) {
  std::string reason;
  EXPECT_EQ(find_nccl(reason, "libnccl-of-nobody.so.2"), nullptr);
  EXPECT_NE(reason.find("libnccl-of-nobody.so.2"), std::string::npos) << reason;
  reason.clear();
  EXPECT_EQ(find_nccl(reason, "libm.so.6"), nullptr);
  EXPECT_NE(reason.find("libm.so.6 has no nccl"), std::string::npos) << reason;
  reason.clear();
  EXPECT_NE(find_nccl(reason), nullptr) << reason;
}

/// A library whose messages are under way for ever, until their communicator is ended.
struct Silent {
  static inline std::atomic<int> async_result = 0;
  static inline std::atomic<bool> aborted = false;

  static std::shared_ptr<const NcclLibrary> library() {
    async_result = 0;
    aborted = false;
    auto made = std::make_shared<NcclLibrary>();
    made->comm_init_rank = [](ncclComm** comm, int, NcclId, int) {
      *comm = reinterpret_cast<ncclComm*>(&aborted);
      return 0;
    };
    made->comm_abort = [](ncclComm*) {
      aborted = true;
      return 0;
    };
    made->comm_get_async_error = [](ncclComm*, int* result) {
      *result = async_result;
      return 0;
    };
    made->group_start = made->group_end = [] { return 0; };
    made->send = [](const void*, size_t, int, int, ncclComm*, kernels::CudaStream) { return 0; };
    made->recv = [](void*, size_t, int, int, ncclComm*, kernels::CudaStream) { return 0; };
    made->get_error_string = [](int) { return "remote process exited"; };
    return made;
  }
};

/// A channel that knows of a loss.
class Knowing final : public RankChannel {
 public:
  [[nodiscard]] Share share() const override { return {.rank = 0, .ranks = 2}; }
  void meet() override {}
  [[nodiscard]] std::string lost() override { return said; }
  [[nodiscard]] std::unique_ptr<Transfer> send(int64_t, std::span<const float>) override { return nullptr; }
  [[nodiscard]] std::unique_ptr<Transfer> receive(int64_t, std::span<float>, WaitLimit) override { return nullptr; }
  std::string said;
};

class NcclWatch : public ::testing::Test {
 protected:
  void SetUp() override { emulated_cuda::set_lazy(true); }
  void TearDown() override { emulated_cuda::set_lazy(false); }

  /// Error message of an exchange that does not end by itself.
  [[nodiscard]] std::string failure(std::chrono::milliseconds answer) {
    kernels::CudaBuffer numbers(16);
    NcclExchange exchange(Silent::library(), {}, channel_, answer);
    Silent::async_result = async_result_;
    const PeerBuffer letter{.other = 1, .data = static_cast<float*>(numbers.data()), .count = 4};
    exchange.exchange({&letter, 1}, {}, queue_.stream());
    while (!Silent::aborted) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    try {
      exchange.confirm();
    } catch (const UserError& error) {
      EXPECT_THROW(exchange.exchange({&letter, 1}, {}, queue_.stream()), UserError);
      return error.what();
    }
    return "";
  }

  Knowing channel_;
  kernels::CudaQueue queue_;
  int async_result_ = 0;
};

TEST_F(NcclWatch, ARankThatDiedIsNamed) {
  channel_.said = "rank 1 of 2 was ended by signal 9 (Killed)";
  EXPECT_EQ(failure(std::chrono::hours(1)), channel_.said);
}

TEST_F(NcclWatch, WhatNcclFindsIsSaid) {
  async_result_ = 6;
  EXPECT_NE(failure(std::chrono::hours(1)).find("NCCL: remote process exited"), std::string::npos);
}

TEST_F(NcclWatch, NobodyIsWaitedForLongerThanTheLimit) {
  EXPECT_NE(failure(std::chrono::milliseconds(300)).find("no rows"), std::string::npos);
}

TEST_F(NcclWatch, WhatArrivesIsLeftAlone) {
  {
    NcclExchange exchange(Silent::library(), {}, channel_);
    exchange.exchange({}, {}, queue_.stream());
    kernels::cuda_synchronize(queue_.stream());
    exchange.confirm();
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    EXPECT_FALSE(Silent::aborted);
  }
  EXPECT_TRUE(Silent::aborted);  // which is how it ends
}

}  // namespace
}  // namespace kvarena::device
