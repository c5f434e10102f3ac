#pragma once
// Kept positions of every layer and head, from the prompt's tokens on, against fixtures of
// tests/golden/dropping_methods.py and decode_eviction.py.

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/method/registry.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_model.h"

namespace kvarena::testing {

/// The positions whose bits are set, ascending.
inline std::vector<int32_t> positions_of(const std::string& hexadecimal) {
  std::vector<int32_t> list;
  for (size_t digit = 0; digit < hexadecimal.size(); ++digit) {
    const int value = std::stoi(hexadecimal.substr(hexadecimal.size() - 1 - digit, 1), nullptr, 16);
    for (int bit = 0; bit < 4; ++bit) {
      if ((value >> bit & 1) != 0) list.push_back(static_cast<int32_t>(4 * digit) + bit);
    }
  }
  return list;
}

inline Needs all_needs(const nlohmann::json& cases) {
  Needs needs;
  for (const nlohmann::json& one : cases) needs = combine(needs, make_method(one["spec"], "golden")->needs());
  return needs;
}

/// Logits after the last of the forced tokens.
inline std::vector<float> forced_logits(Transformer& model, KvCache& cache, const std::vector<int32_t>& forced) {
  std::vector<float> logits;
  for (const int32_t token : forced) {
    const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .logits = LogitsRows::all};
    const auto rows = model.forward({&pass, 1});
    logits.assign(rows.begin(), rows.end());
  }
  return logits;
}

inline void expect_kept(const KvCache& cache, const nlohmann::json& golden, const std::string& what) {
  for (size_t layer = 0; layer < golden.size(); ++layer) {
    for (size_t head = 0; head < golden[layer].size(); ++head) {
      if (golden[layer][head].is_null()) continue;
      EXPECT_EQ(cache.layers[layer].tail().positions(static_cast<int64_t>(head)), positions_of(golden[layer][head]))
          << what << ", layer " << layer << ", kv head " << head;
    }
  }
}

/// Compares every case of FOLDER/METHOD.json, `cases` a prompt, after the prompt and after its forced tokens. `weights`
/// is the method's file of weights.
inline void expect_golden_entries(const std::string& method_name, size_t cases,
                                  const std::string& folder = "dropping_methods", const std::string& weights = "") {
  Transformer model = tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const nlohmann::json prompts = golden(folder + "/" + method_name + ".json")["prompts"];
  ASSERT_EQ(prompts.size(), 5U);
  for (size_t index = 0; index < prompts.size(); ++index) {
    const nlohmann::json& prompt = prompts[index];
    ASSERT_EQ(prompt["cases"].size(), cases);
    const auto tokens = prompt["tokens"].get<std::vector<int32_t>>();
    const auto forced = prompt["forced"].get<std::vector<int32_t>>();
    const Prefill start = prefill(model, tokens, all_needs(prompt["cases"]));
    for (const nlohmann::json& one : prompt["cases"]) {
      const std::string what = "prompt " + std::to_string(index) + ", " + one["spec"].dump();
      nlohmann::json spec = one["spec"];
      if (!weights.empty()) spec["weights"] = weights;
      const auto method = make_method(spec, "golden");
      Activity activity;
      KvCache cache = compress_prompt(start, *method, activity);
      expect_kept(cache, one["kept"], what);
      if (one["decoded"].is_null()) continue;
      MethodHooks hooks(*method, activity, static_cast<int64_t>(tokens.size()), start.model.get());
      for (const int32_t token : forced) {
        const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .hooks = &hooks, .logits = LogitsRows::none};
        (void)model.forward({&pass, 1});
      }
      expect_kept(cache, one["decoded"], what + " after decoding");
    }
  }
}

}  // namespace kvarena::testing
