// Cache of a device (emulated here) after a prompt of which only some tokens were computed there.
#include <gtest/gtest.h>

#include <numeric>

#include "harness/core/error.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/differences.h"
#include "tests/support/offloaded_model.h"

namespace kvarena::device {
namespace {

using testing::tiny_prompt;

std::vector<int32_t> from(int32_t first, int32_t end) {
  std::vector<int32_t> list(static_cast<size_t>(end - first));
  std::iota(list.begin(), list.end(), first);
  return list;
}

TEST(DeviceRows, ACopyIsLikeItsCacheWhenThePromptIsDone) {
  Offloaded offloaded;
  Transformer host = testing::tiny_model(1, kF32);
  const std::vector<int32_t> tokens = tiny_prompt(80), other = tiny_prompt(50, 3);
  const std::span<const int32_t> prompt = std::span(tokens).first(60), answer = std::span(tokens).last(20);
  std::vector<int32_t> some{3, 4, 17, 40, 49};
  for (const int32_t position : from(50, 60)) some.push_back(position);
  std::vector<std::vector<float>> answers[2];
  for (Transformer* model : {&offloaded.model(), &host}) {
    std::vector<std::vector<float>>& logits = answers[model == &host];
    for (const std::vector<int32_t>& positions : {from(0, 60), some}) {
      KvCache cache = model->make_cache();
      if (positions == some) (void)fed(*model, cache, other);
      const Recomputed computed = model->recompute({.tokens = prompt, .positions = positions, .cache = &cache});
      logits.emplace_back(computed.logits.begin(), computed.logits.end());
      KvCache copy = cache.clone();
      copy.mirror.reset();
      const int64_t before = offloaded.device().mirrors().uploads();
      logits.push_back(fed(*model, cache, answer));
      EXPECT_EQ(offloaded.device().mirrors().uploads(), before);
      EXPECT_EQ(fed(*model, copy, answer), logits.back());  // brought from the host
    }
  }
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 2);  // the clones
  EXPECT_EQ(offloaded.device().tokens(), 60 + 50 + 15 + 4 * 20);
  for (size_t i = 0; i < answers[1].size(); ++i)
    EXPECT_LT(testing::relative_error(answers[0][i], answers[1][i]), 1e-4) << i;
}

TEST(DeviceRows, APromptThatIsCutIntoCallsOverAnUploadedCacheHasTheSameBits) {
  Offloaded offloaded;
  Transformer& model = offloaded.model();
  const std::vector<int32_t> tokens = tiny_prompt(60), other = tiny_prompt(50, 3);
  std::vector<int32_t> some{3, 4, 17, 40, 49};
  for (const int32_t position : from(50, 60)) some.push_back(position);
  std::vector<float> answers[2];
  for (const bool cut : {false, true}) {
    KvCache cache = model.make_cache();
    for (int64_t fed_so_far = 0; fed_so_far < 50; fed_so_far += 25) {
      (void)fed(model, cache, std::span(other).subspan(fed_so_far, 25));
      if (cut) cache.mirror.reset();  // it came from elsewhere
      if (cut) model.upload(cache, 60 - cache.length);
    }
    const int64_t before = offloaded.device().mirrors().uploads();
    std::span<const float> logits;
    for (size_t first = 0; first < some.size();) {
      const size_t end = cut ? std::min(first + 4, some.size()) : some.size();
      logits =
          model.recompute({.tokens = tokens, .positions = std::span(some).subspan(first, end - first), .cache = &cache})
              .logits;
      first = end;
    }
    EXPECT_EQ(cache.length, 60);
    EXPECT_EQ(offloaded.device().mirrors().uploads(), before);
    answers[cut].assign(logits.begin(), logits.end());
  }
  EXPECT_EQ(answers[1], answers[0]);
}

TEST(DeviceRows, AHelperComputesOnTheDeviceInRoomThatCachesGiveUp) {
  const ModelConfig config = testing::tiny_config();
  const testing::RandomCheckpoint own(testing::llama_tensors(config), 1), other(testing::llama_tensors(config), 2);
  const std::vector<int64_t> layers = spread_layers(config.layers);
  const DeviceModel alone(config, other, kF32, std::vector<int64_t>(layers.size(), layers.back()));
  int64_t entry = 0, last = 0;  // bytes of a token: in all layers, in those of the last device
  const DeviceModel placed(config, own, kF32, layers);
  for (const PlacedLayer& layer : placed.shapes()) {
    entry += layer.entry_bytes();
    if (layer.device == layers.back()) last += layer.entry_bytes();
  }
  constexpr int64_t kTokens = 60, kRoom = 345;  // for one cache with what it may grow by, not for a second beside it
  const int64_t room = alone.weight_bytes() + config.max_position * entry + kRoom * last;
  for (const bool helped : {false, true}) {
    Transformer target = testing::tiny_model(1, kF32), helper = testing::tiny_model(2, kF32);
    auto device = std::make_unique<DeviceOffload>(DeviceModel(config, own, kF32, layers), room);
    const DeviceMirrors& mirrors = device->mirrors();
    if (helped) helper.offload_to(device->beside(config, other, kF32));
    target.offload_to(std::move(device));
    KvCache first = target.make_cache(), second = target.make_cache(), here = helper.make_cache();
    const std::vector<int32_t> tokens = tiny_prompt(kTokens);
    (void)fed(target, first, tokens);
    (void)fed(target, second, tokens);
    EXPECT_EQ(mirrors.evictions(), helped ? 1 : 0);
    const std::vector<float> got = fed(helper, here, tokens);
    EXPECT_EQ(here.mirror != nullptr, helped) << "a copy on the device";
    Transformer host = testing::tiny_model(2, kF32);
    KvCache cache = host.make_cache();
    EXPECT_LT(testing::relative_error(got, fed(host, cache, tokens)), 1e-4);
  }
}

/// Half of the rows stay behind each layer.
class Halving final : public RowPruner {
 public:
  void attended(int64_t /*layer*/, std::span<const int32_t> /*positions*/, const LayerCache& /*cache*/,
                const LayerQueries& /*queries*/, const float* /*lse*/) override {}
  [[nodiscard]] std::vector<int32_t> keep(int64_t /*layer*/, std::span<const int32_t> positions) override {
    return {positions.begin() + std::ssize(positions) / 2, positions.end()};
  }
};

TEST(DeviceRows, WhereRowsWerePrunedTheCacheComesToTheDeviceOnceMore) {
  Offloaded offloaded;
  Transformer host = testing::tiny_model(1, kF32);
  const std::vector<int32_t> tokens = tiny_prompt(80);
  std::vector<float> answers[2];
  for (Transformer* model : {&offloaded.model(), &host}) {
    Halving pruner;
    KvCache cache = model->make_cache();
    (void)model->recompute(
        {.tokens = std::span(tokens).first(60), .positions = from(0, 60), .cache = &cache, .pruner = &pruner});
    EXPECT_EQ(cache.layers[2].entries(0), 15);
    answers[model == &host] = fed(*model, cache, std::span(tokens).last(20));
  }
  EXPECT_LT(testing::relative_error(answers[0], answers[1]), 1e-4);
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 1);
}

/// Keeps every row, and notes the most bytes that the devices hold.
class Watching final : public RowFilter, public RowPruner {
 public:
  [[nodiscard]] bool judges(int64_t layer) const override { return layer == 2; }
  void see(int64_t /*layer*/, std::span<const int32_t> /*positions*/, const float* /*keys*/, const float* /*values*/,
           int64_t /*stride*/, const LayerCache& /*cache*/) override {
    look();
  }
  void attended(int64_t /*layer*/, std::span<const int32_t> /*positions*/, const LayerCache& /*cache*/,
                const LayerQueries& /*queries*/, const float* /*lse*/) override {
    look();
  }
  [[nodiscard]] std::vector<int32_t> keep(int64_t /*layer*/, std::span<const int32_t> positions) override {
    return {positions.begin(), positions.end()};
  }
  int64_t most = 0;

 private:
  void look() { most = std::max<int64_t>(most, emulated_cuda::taken_bytes()); }
};

/// Layers that no pass attends to again take turns with a device's room for one.
TEST(DeviceRows, APromptThatLeavesItsLayersBehindTakesOneLayerOfADevice) {
  if (!emulated_cuda::here()) GTEST_SKIP() << emulated_cuda::kOnlyHere;
  constexpr int64_t kCache = 768, kLayer = 512;  // tokens that there is room for: with an answer, and without
  const int64_t entry = Offloaded().device().model().shapes().front().entry_bytes();
  const int64_t devices = std::min<int64_t>(3, kernels::cuda_devices());
  Offloaded offloaded((3 / devices * kCache + kLayer) * entry);
  Transformer& model = offloaded.model();
  const std::vector<int32_t> tokens = tiny_prompt(300);
  const auto read = [&](bool by_layer) {
    const int64_t before = emulated_cuda::taken_bytes();
    Watching rows;
    KvCache cache = model.make_cache();
    const Recomputed computed = model.recompute({.tokens = tokens,
                                                 .positions = from(0, 300),
                                                 .cache = &cache,
                                                 .filter = by_layer ? nullptr : &rows,
                                                 .pruner = by_layer ? &rows : nullptr});
    EXPECT_EQ(cache.mirror == nullptr, by_layer);
    return std::pair{rows.most - before, std::vector(computed.logits.begin(), computed.logits.end())};
  };
  for (const bool by_layer : {false, true}) (void)read(by_layer);  // passes get their memory
  const auto [whole, want] = read(false);
  const auto [layer, got] = read(true);
  EXPECT_EQ(got, want);
  EXPECT_EQ(whole - layer, (3 * kCache - devices * kLayer) * entry);

  const DeviceMirrors& mirrors = offloaded.device().mirrors();
  KvCache other = model.make_cache();
  (void)fed(model, other, tokens);
  (void)read(true);
  EXPECT_EQ(mirrors.evictions(), 0);
  (void)read(false);
  EXPECT_EQ(mirrors.evictions(), 1);
}

class Failing final : public RowFilter {
 public:
  [[nodiscard]] bool judges(int64_t layer) const override { return layer == 1; }
  void see(int64_t /*layer*/, std::span<const int32_t> /*positions*/, const float* /*keys*/, const float* /*values*/,
           int64_t /*stride*/, const LayerCache& /*cache*/) override {
    throw UserError("enough");
  }
  [[nodiscard]] std::vector<int32_t> keep(int64_t /*layer*/, std::span<const int32_t> /*positions*/) override {
    return {};
  }
};

TEST(DeviceRows, APromptThatIsGivenUpSpoilsNobodyElses) {
  Offloaded offloaded;
  Transformer& model = offloaded.model();
  const std::vector<int32_t> tokens = tiny_prompt(60);
  KvCache plain = model.make_cache(), spoiled = model.make_cache();
  (void)fed(model, plain, std::span(tokens).first(40));
  KvCache copy = plain.clone();
  const std::vector<float> want = fed(model, copy, std::span(tokens).last(20));
  Failing filter;
  EXPECT_THROW(
      (void)model.recompute({.tokens = tokens, .positions = from(0, 60), .cache = &spoiled, .filter = &filter}),
      UserError);
  EXPECT_EQ(spoiled.mirror, nullptr);
  EXPECT_EQ(fed(model, plain, std::span(tokens).last(20)), want);
}

}  // namespace
}  // namespace kvarena::device
