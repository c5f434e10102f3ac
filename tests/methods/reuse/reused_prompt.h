#pragma once
// Prompts whose parts were seen before, against full prefills and fixtures of tests/golden/reuse_methods.py.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/engine/reuse/reuse_prompt.h"
#include "harness/method/registry.h"
#include "tests/harness/engine/reuse/support.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_model.h"

namespace kvarena::testing {

/// Answers one request, its parts seen before.
inline ReusedPrompt run(Transformer& model, const std::vector<int32_t>& tokens, const PromptLayout& layout,
                        const nlohmann::json& spec) {
  const auto method = make_method(spec, "test");
  ReuseMemory memory;
  prime(model, tokens, layout, *method->reuser(), memory);
  return reuse_prompt(model, tokens, layout, *method->reuser(), memory);
}

inline void expect_full(Transformer& model, const std::vector<int32_t>& tokens, const PromptLayout& layout,
                        const nlohmann::json& spec) {
  SCOPED_TRACE(spec.dump());
  const FullPrompt full(model, tokens);
  const ReusedPrompt reused = run(model, tokens, layout, spec);
  EXPECT_EQ(reused.logits, full.logits);
  expect_same_bits(reused.cache, full.cache);
}

/// Compares which tokens are computed anew, and the logits, with every case of reuse_methods/METHOD.json.
inline void expect_golden_reuse(const std::string& method_name, size_t cases) {
  Transformer model = tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const nlohmann::json found = golden("reuse_methods/" + method_name + ".json")["cases"];
  ASSERT_EQ(found.size(), cases);
  for (const nlohmann::json& one : found) {
    SCOPED_TRACE(one["spec"].dump());
    const PromptLayout layout{.prefix = one["prefix"], .question = one["question"].get<int64_t>()};
    const ReusedPrompt reused = run(model, one["tokens"].get<std::vector<int32_t>>(), layout, one["spec"]);
    EXPECT_EQ(reused.record.recomputed, one["recomputed"].get<std::vector<int32_t>>());
    const auto expected = one["logits"].get<std::vector<double>>();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(reused.logits[8 * i], expected[i], 1e-3) << 8 * i;
  }
}

}  // namespace kvarena::testing
