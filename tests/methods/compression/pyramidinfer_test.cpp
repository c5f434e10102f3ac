// PyramidInfer against the authors' code (tests/golden/pyramidinfer.py).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/core/random.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/session.h"
#include "harness/method/pruner.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;

Transformer six_layers() {
  ModelConfig config = testing::tiny_config();
  config.layers = 6;
  config.hidden_size = 128;
  return {config,
          testing::RandomCheckpoint(testing::llama_tensors(config), 1),
          {.weights = kernels::DType::f32, .cache = kernels::DType::f32}};
}

/// The positions whose bits are set, ascending.
std::vector<int32_t> positions_of(const std::string& hexadecimal) {
  std::vector<int32_t> list;
  for (size_t digit = 0; digit < hexadecimal.size(); ++digit) {
    const int value = std::stoi(hexadecimal.substr(hexadecimal.size() - 1 - digit, 1), nullptr, 16);
    for (int bit = 0; bit < 4; ++bit) {
      if ((value >> bit & 1) != 0) list.push_back(static_cast<int32_t>(4 * digit) + bit);
    }
  }
  return list;
}

void expect_logits(std::span<const float> logits, const json& expected, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(logits[8 * i], expected[i].get<double>(), 2e-3) << what;
}

TEST(PyramidInfer, PrunesAndDecodesLikeTheAuthorsCode) {
  Transformer model = six_layers();
  const json golden = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/pyramidinfer.json"));
  int64_t steps = 0;
  for (size_t index = 0; index < golden["prompts"].size(); ++index) {
    const json& prompt = golden["prompts"][index];
    const auto tokens = prompt["tokens"].get<std::vector<int32_t>>();
    const auto forced = prompt["forced"].get<std::vector<int32_t>>();
    const Prefill unread = unread_prompt(model, tokens);
    for (const json& one : prompt["cases"]) {
      json spec = one["spec"];
      spec["name"] = "pyramidinfer";
      const std::string what = fmt::format("prompt {}, {}", index, spec.dump());
      const auto method = make_method(spec, "golden");
      Activity activity;
      PromptState state = state_after_prompt(model, unread, *method, activity);
      int64_t dropped = 0;
      for (size_t layer = 0; layer < 6; ++layer) {
        const std::vector<int32_t> expected = positions_of(one["computed"][layer].get<std::string>());
        dropped += 2 * static_cast<int64_t>(tokens.size() - expected.size());
        for (int64_t head = 0; head < 2; ++head) {
          EXPECT_EQ(state.cache.layers[layer].tail().positions(head), expected) << what << ", layer " << layer;
        }
      }
      EXPECT_EQ(activity.entries_dropped, dropped);
      expect_logits(state.logits, one["prompt"], what);

      MethodHooks hooks(*method, activity, static_cast<int64_t>(tokens.size()), unread.model.get());
      for (size_t step = 0; step < one["held"].size(); ++step) {
        const SequencePass pass{.tokens = {&forced[step], 1}, .cache = &state.cache, .hooks = &hooks};
        const std::span<const float> logits = model.forward({&pass, 1});
        const std::string key = std::to_string(step);
        if (one["steps"].contains(key)) expect_logits(logits, one["steps"][key], fmt::format("{}, step {}", what, key));
        for (size_t layer = 0; layer < 6; ++layer) {
          EXPECT_EQ(state.cache.layers[layer].entries(1), one["held"][step][layer].get<int64_t>())
              << what << ", step " << step << ", layer " << layer;
        }
        ++steps;
      }
      // Beside what was allocated a number a layer and one for the request.
      EXPECT_EQ(state.cache.bytes(), state.cache.ledger->current(Tier::device) + 7 * 8);
    }
  }
  EXPECT_EQ(steps, 5 * 3 * 60);
}

TEST(PyramidInfer, FollowsTheCosineFromLayerToLayer) {
  const auto method = make_method({{"name", "pyramidinfer"}}, "test");
  const Pruner& pruner = *method->pruner();
  const int64_t n = 1251;  // 1000 tokens of context
  const RandomStream draws(5, "attention");
  std::vector<int32_t> positions(n);
  for (int32_t i = 0; i < n; ++i) positions[i] = i;
  std::vector<int64_t> context;
  for (int64_t layer = 0; layer < 4; ++layer) {
    context.push_back(static_cast<int64_t>(positions.size()) - 251);
    std::vector<float> attention;
    for (size_t i = 0; i < positions.size(); ++i) {
      attention.push_back(static_cast<float>(draws.uniform(static_cast<uint64_t>(layer * n) + i)));
    }
    const std::vector<int32_t> before = positions;
    if (pruner.prunes(layer, 4)) {
      positions =
          pruner.keep({.layer = layer, .layers = 4, .prompt_tokens = n, .positions = before, .attention = attention});
    }
    EXPECT_TRUE(std::ranges::includes(before, positions));
    for (const int32_t sink : {0, 1, 2, 3}) EXPECT_EQ(positions[sink], sink);
    EXPECT_EQ(positions.back(), n - 1);
  }
  EXPECT_EQ(context, (std::vector<int64_t>{1000, 1000, 985, 935}));
  const std::vector<float> votes = pruner.votes(n);
  EXPECT_EQ(votes.size(), 251U);
  EXPECT_FLOAT_EQ(votes.front(), 1.0F);
  EXPECT_FLOAT_EQ(votes.back(), 1.2F);
}

TEST(PyramidInfer, WithoutDecayIsFullKvBitForBit) {
  Transformer model = testing::tiny_model();
  const auto same = make_method({{"name", "pyramidinfer"}, {"decay", 1.0}, {"decoding", false}}, "test");
  const Method full;
  const Prefill start = prefill(model, testing::tiny_prompt(700), {});
  std::vector<std::vector<float>> logits;
  for (const Method* method : {&full, static_cast<const Method*>(same.get())}) {
    SessionOptions options{.stop = {.max_new_tokens = 12}};
    options.on_logits = [&](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
    const auto session = start_session(model, start, *method, options);
    Session* const sessions[] = {session.get()};
    run_together(model, sessions);
    EXPECT_EQ(session->activity.entries_dropped, 0);
  }
  ASSERT_EQ(logits.size(), 24U);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(logits[i], logits[i + 12]);
}

TEST(PyramidInfer, APromptOfManyBlocksKeepsItsBits) {
  // Blocks of rows pass a layer one by one; what the voters attend to must not depend on where a block ends.
  Transformer model = testing::tiny_model();
  const auto method = make_method({{"name", "pyramidinfer"}, {"decay", 0.5}, {"recent_ratio", 0.7}}, "test");
  for (const int64_t n : {300, 1100, 1537}) {
    Activity activity;
    const PromptState state =
        state_after_prompt(model, unread_prompt(model, testing::tiny_prompt(n)), *method, activity);
    int64_t before = n;
    for (const LayerCache& layer : state.cache.layers) {
      EXPECT_LE(layer.entries(0), before);
      before = layer.entries(0);
      EXPECT_EQ(layer.tail().positions(0), layer.tail().positions(1));
      EXPECT_TRUE(std::ranges::is_sorted(layer.tail().positions(0)));
    }
    EXPECT_LT(before, n);
    EXPECT_GE(before, static_cast<int64_t>(0.7 * static_cast<double>(n)));
    for (const float logit : state.logits) EXPECT_TRUE(std::isfinite(logit));
  }
}

}  // namespace
}  // namespace kvarena
