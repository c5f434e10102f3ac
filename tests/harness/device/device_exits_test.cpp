// Passes that leave behind one of the first layers, on a device (emulated here): drafts of early exits.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "tests/support/differences.h"
#include "tests/support/golden_model.h"
#include "tests/support/offloaded_model.h"

namespace kvarena::device {
namespace {

using testing::relative_error;
using testing::tiny_prompt;

/// Sequences that leave after 1, 2 and all layers in one pass, against each alone, on the device and on the host.
TEST(DeviceExits, LeavingEarlyDisturbsNoOther) {
  Transformer host = testing::tiny_model(1, kF32);
  Offloaded offloaded;
  const std::vector<std::vector<int32_t>> prompts{tiny_prompt(9, 1), tiny_prompt(5, 2), tiny_prompt(7, 3),
                                                  tiny_prompt(4, 4)};
  const std::vector<int64_t> exits{2, 0, 1, 3};
  std::vector<KvCache> caches;
  for (size_t i = 0; i < prompts.size(); ++i) caches.push_back(offloaded.model().make_cache());
  std::vector<SequencePass> batch;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const LogitsRows rows = i == 2 ? LogitsRows::last : LogitsRows::all;
    batch.push_back({.tokens = prompts[i], .cache = &caches[i], .logits = rows, .exit_after = exits[i]});
  }
  const std::span<const float> rows = offloaded.model().forward(batch);
  std::vector<float> together(rows.begin(), rows.end());
  std::span<const float> left = together;
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<float> own[2];
    for (Transformer* model : {&offloaded.model(), &host}) {
      KvCache cache = model->make_cache();
      SequencePass alone = batch[i];
      alone.cache = &cache;
      const std::span<const float> logits = model->forward({&alone, 1});
      own[model == &host].assign(logits.begin(), logits.end());
    }
    ASSERT_LE(own[0].size(), left.size());
    EXPECT_TRUE(std::ranges::equal(own[0], left.first(own[0].size()))) << i;
    EXPECT_LT(relative_error(own[0], own[1]), 1e-4) << i;
    left = left.subspan(own[0].size());
    for (int64_t layer = 0; layer < 3; ++layer) {
      const bool visited = exits[i] == 0 || layer < exits[i];
      EXPECT_EQ(caches[i].layers[layer].entries(0), visited ? std::ssize(prompts[i]) : 0);
    }
    EXPECT_EQ(caches[i].length, std::ssize(prompts[i]));
  }
  EXPECT_TRUE(left.empty());
  EXPECT_EQ(offloaded.device().tokens(), 2 * (9 + 5 + 7 + 4));
}

/// One sequence's tokens through its first layers, one after the other.
std::vector<std::vector<float>> drafted(Transformer& model, KvCache& cache, std::span<const int32_t> tokens,
                                        int64_t layers) {
  std::vector<std::vector<float>> logits;
  for (const int32_t& token : tokens) {
    const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .exit_after = layers};
    const std::span<const float> rows = model.forward({&pass, 1});
    logits.emplace_back(rows.begin(), rows.end());
  }
  return logits;
}

TEST(DeviceExits, DraftsOfTheFirstLayersAreTakenBackWhereTheyWereComputed) {
  Offloaded offloaded;
  Transformer& model = offloaded.model();
  const std::vector<int32_t> tokens = tiny_prompt(80);
  KvCache plain = model.make_cache(), cache = model.make_cache();
  (void)fed(model, plain, std::span(tokens).first(60));
  (void)fed(model, cache, std::span(tokens).first(60));
  const std::vector<float> want = fed(model, plain, std::span(tokens).last(20));
  for (const int64_t layers : {1, 2}) {
    SCOPED_TRACE(layers);
    const std::vector<std::vector<float>> logits = drafted(model, cache, std::span(tokens).subspan(60, 5), layers);
    cache.truncate(60);
    const SequencePass run{.tokens = std::span(tokens).subspan(60, 5), .cache = &cache, .exit_after = layers};
    const std::span<const float> last = model.forward({&run, 1});
    EXPECT_TRUE(std::ranges::equal(last, logits.back()));
    cache.truncate(60);
    EXPECT_EQ(fed(model, cache, std::span(tokens).last(20)), want);
    cache.truncate(60);
  }
  EXPECT_EQ(offloaded.device().mirrors().uploads(), 0);
}

/// Layers that a pass left out lack its tokens, whoever attends to them later and wherever the cache was meanwhile.
TEST(DeviceExits, WhatLayersLackIsNotAttendedTo) {
  Offloaded offloaded;
  Transformer host = testing::tiny_model(1, kF32);
  const std::vector<int32_t> tokens = tiny_prompt(80);
  const auto some = [&](size_t first, size_t count) { return std::span(tokens).subspan(first, count); };
  std::vector<std::vector<float>> answers[2];
  for (Transformer* model : {&offloaded.model(), &host}) {
    KvCache cache = model->make_cache();
    std::vector<std::vector<float>>& logits = answers[model == &host];
    logits.push_back(fed(*model, cache, some(0, 50)));
    (void)drafted(*model, cache, some(50, 4), 1);
    KvCache copy = cache.clone();  // goes up in the middle of a round
    std::ranges::copy(drafted(*model, copy, some(54, 4), 1), std::back_inserter(logits));
    copy.truncate(50);
    logits.push_back(fed(*model, copy, some(50, 10)));
    std::ranges::copy(drafted(*model, cache, some(54, 4), 2), std::back_inserter(logits));  // deeper than before
    logits.push_back(fed(*model, cache, some(58, 10)));                                     // nothing was taken back
  }
  for (size_t i = 0; i < answers[1].size(); ++i) EXPECT_LT(relative_error(answers[0][i], answers[1][i]), 1e-4) << i;
}

TEST(DeviceExits, DraftsUnderASlidingWindowAttendOnTheDevice) {
  const testing::GoldenModel golden = testing::golden_model("mistral");
  Transformer model = golden.transformer(kF32);
  auto owned = std::make_unique<DeviceOffload>(
      DeviceModel(golden.config, golden.checkpoint(), kF32, spread_layers(golden.config.layers)), int64_t{1} << 30);
  const DeviceOffload& device = *owned;
  model.offload_to(std::move(owned));
  ASSERT_TRUE(std::ranges::any_of(device.model().shapes(), [](const LayerShape& shape) { return shape.window > 0; }));
  std::vector<int32_t> tokens;
  for (int32_t i = 3; i < 60; ++i) tokens.push_back(i);
  KvCache cache = model.make_cache();
  (void)fed(model, cache, std::span(tokens).first(50));
  const std::vector<std::vector<float>> single = drafted(model, cache, std::span(tokens).last(7), 1);
  KvCache copy = cache.clone();
  EXPECT_EQ(drafted(model, copy, {&tokens[5], 1}, 1), drafted(model, cache, {&tokens[5], 1}, 1));
  cache.truncate(50);
  const SequencePass run{.tokens = std::span(tokens).last(7), .cache = &cache, .exit_after = 1};
  EXPECT_TRUE(std::ranges::equal(model.forward({&run, 1}), single.back()));
  EXPECT_EQ(device.mirrors().uploads(), 1);  // the clone
}

}  // namespace
}  // namespace kvarena::device
