// Forced decoding of the default model under methods that change entries or prune the prompt as it is read, against
// tests/golden/merging_methods.py and pyramidinfer.py.

#include <fmt/format.h>

#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/method/registry.h"
#include "tests/methods/compression/smollm2_f32.h"

namespace kvarena {
namespace {

using nlohmann::json;

class DecodedSmolLm2 : public testing::SmolLm2F32 {
 protected:
  /// Calls use(prompt, case, method, cache and logits after the prompt) for every case.
  template <class Use>
  void each_case(const json& golden, const Use& use) {
    for (const json& prompt : golden["prompts"]) {
      Needs needs;
      for (const json& one : prompt["cases"]) needs = combine(needs, make_method(one["spec"], "golden")->needs());
      const Prefill start = prefill(*model_, prompt["tokens"].get<std::vector<int32_t>>(), needs);
      for (const json& one : prompt["cases"]) {
        SCOPED_TRACE(one["spec"].dump());
        const auto method = make_method(one["spec"], "golden");
        Activity activity;
        PromptState state = state_after_prompt(*model_, start, *method, activity);
        use(prompt, one, *method, activity, start, state);
      }
    }
  }

  /// Feeds the forced tokens; `after(step)` follows each pass.
  template <class After>
  void force(const json& prompt, const json& one, const Method& method, Activity& activity, const Prefill& start,
             KvCache& cache, const After& after) {
    const auto forced = prompt["forced"].get<std::vector<int32_t>>();
    MethodHooks hooks(method, activity, static_cast<int64_t>(start.tokens.size()), start.model.get());
    for (size_t step = 0; step < forced.size(); ++step) {
      const SequencePass pass{.tokens = {&forced[step], 1}, .cache = &cache, .hooks = &hooks};
      const std::span<const float> logits = model_->forward({&pass, 1});
      if (const std::string key = std::to_string(step); one["steps"].contains(key)) {
        expect_logits(logits, one["steps"][key], fmt::format("step {}", step));
      }
      after(step);
    }
  }

  /// Every 4096th logit, which are of the size of 10; thirty layers in float32 are off by up to 1e-3 of it.
  static void expect_logits(std::span<const float> logits, const json& expected, const std::string& what) {
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(logits[4096 * i], expected[i].get<double>(), 1e-2) << what << ", token " << 4096 * i;
    }
  }
};

/// Positions of all segments, by head.
json positions_of(const LayerCache& layer) {
  json heads = json::array();
  for (int64_t head = 0; head < layer.shape().kv_heads; ++head) {
    std::vector<int32_t> all;
    for (const auto& segment : layer.segments()) {
      for (const int32_t position : segment->positions(head)) all.push_back(position);
    }
    heads.push_back(all);
  }
  return heads;
}

TEST_F(DecodedSmolLm2, MergesAsRestated) {
  int64_t compared = 0;
  each_case(golden("merging_smollm2.json"), [&](const json& prompt, const json& one, const Method& method,
                                                Activity& activity, const Prefill& start, PromptState& state) {
    force(prompt, one, method, activity, start, state.cache, [](size_t) {});
    for (size_t layer = 0; layer < state.cache.layers.size(); ++layer) {
      EXPECT_EQ(digest(positions_of(state.cache.layers[layer])), one["positions"][layer].get<std::string>())
          << "layer " << layer;
      ++compared;
    }
  });
  EXPECT_EQ(compared, 5 * 9 * 30);
}

TEST_F(DecodedSmolLm2, PrunesThePromptLikeTheAuthorsCode) {
  json cases = golden("pyramidinfer_smollm2.json");
  for (json& prompt : cases["prompts"]) {
    for (json& one : prompt["cases"]) one["spec"]["name"] = "pyramidinfer";
  }
  int64_t compared = 0;
  each_case(cases, [&](const json& prompt, const json& one, const Method& method, Activity& activity,
                       const Prefill& start, PromptState& state) {
    for (size_t layer = 0; layer < state.cache.layers.size(); ++layer) {
      EXPECT_EQ(digest(state.cache.layers[layer].tail().positions(0)), one["computed"][layer].get<std::string>())
          << "layer " << layer;
      ++compared;
    }
    expect_logits(state.logits, one["prompt"], "prompt");
    if (one["held"].empty()) return;  // the authors' code cannot decode with an interval above 1
    force(prompt, one, method, activity, start, state.cache, [&](size_t step) {
      for (size_t layer = 0; layer < state.cache.layers.size(); ++layer) {
        EXPECT_EQ(state.cache.layers[layer].entries(1), one["held"][step][layer].get<int64_t>())
            << "step " << step << ", layer " << layer;
      }
    });
  });
  EXPECT_EQ(compared, 5 * 4 * 30);
}

}  // namespace
}  // namespace kvarena
