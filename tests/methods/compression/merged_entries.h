#pragma once
// Merging methods from the prompt's tokens on, through a prefill and forced decoding, against
// tests/golden/merging_methods.py.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/method/registry.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_model.h"

namespace kvarena::testing {

/// Positions of all segments of a head as bits of a hexadecimal number.
inline std::string mask_of(const LayerCache& layer, int64_t head) {
  std::vector<int> nibbles(64, 0);
  for (const auto& segment : layer.segments()) {
    for (const int32_t position : segment->positions(head)) nibbles[position / 4] |= 1 << position % 4;
  }
  std::string text;
  for (auto nibble = nibbles.rbegin(); nibble != nibbles.rend(); ++nibble) {
    if (*nibble != 0 || !text.empty()) text += "0123456789abcdef"[*nibble];
  }
  return text;
}

/// Compares positions and logits of all cases of merging_methods/METHOD.json.
inline void expect_golden_merges(const std::string& method_name) {
  Transformer model = tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const nlohmann::json prompts = golden("merging_methods/" + method_name + ".json")["prompts"];
  int64_t compared = 0;
  for (const nlohmann::json& prompt : prompts) {
    Needs needs;
    for (const nlohmann::json& one : prompt["cases"])
      needs = combine(needs, make_method(one["spec"], "golden")->needs());
    const auto forced = prompt["forced"].get<std::vector<int32_t>>();
    const Prefill start = prefill(model, prompt["tokens"].get<std::vector<int32_t>>(), needs);
    for (const nlohmann::json& one : prompt["cases"]) {
      SCOPED_TRACE(one["spec"].dump());
      const auto method = make_method(one["spec"], "golden");
      Activity activity;
      KvCache cache = compress_prompt(start, *method, activity);
      MethodHooks hooks(*method, activity, static_cast<int64_t>(start.tokens.size()), start.model.get());
      for (size_t step = 0; step < forced.size(); ++step) {
        const SequencePass pass{.tokens = {&forced[step], 1}, .cache = &cache, .hooks = &hooks};
        const std::span<const float> logits = model.forward({&pass, 1});
        const std::string key = std::to_string(step);
        if (!one["steps"].contains(key)) continue;
        for (size_t i = 0; i < one["steps"][key].size(); ++i) {
          EXPECT_NEAR(logits[8 * i], one["steps"][key][i].get<double>(), 2e-3) << "step " << step;
        }
      }
      for (size_t layer = 0; layer < 3; ++layer) {
        for (size_t head = 0; head < 2; ++head) {
          EXPECT_EQ(mask_of(cache.layers[layer], static_cast<int64_t>(head)),
                    one["positions"][layer][head].get<std::string>())
              << "layer " << layer << ", kv head " << head;
        }
      }
      EXPECT_TRUE(activity.acted());
      ++compared;
    }
  }
  EXPECT_EQ(compared, 5 * 3);
}

}  // namespace kvarena::testing
