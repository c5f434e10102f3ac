// SpecCache: equations 1 to 6 and the logits, restated in float64 (tests/golden/reuse_methods.py; there is no public
// code), budgets, and what is read of the speculative model.

#include <algorithm>
#include <set>

#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

TEST(SpecCache, BudgetsHold) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(400);
  const auto chosen = [&](const json& more) {
    json spec = {{"name", "speccache"}, {"recompute", 0.2}, {"tau_smooth", 0.9}, {"tau_cover", 0.3}, {"chunk", 64}};
    spec.update(more);
    return run(model, tokens, {}, spec).record.recomputed;
  };
  const std::vector<int32_t> plain = chosen({{"tau_cover", 1.1}});
  EXPECT_LE(plain.size(), 80U);
  EXPECT_GE(plain.size(), 79U) << "the question may be one of them";
  const std::vector<int32_t> completed = chosen(json::object());
  EXPECT_GT(completed.size(), plain.size());
  EXPECT_TRUE(std::ranges::includes(completed, plain));
  const std::vector<int32_t> held = chosen({{"hold_ratio", true}});
  EXPECT_LE(held.size(), 80U);
  EXPECT_GE(held.size(), 79U) << "the budget is used";
  EXPECT_NE(held, plain) << "some of it for spans";
  EXPECT_LE(chosen({{"max_factor", 1.25}}).size(), 100U);
  EXPECT_EQ(chosen({{"max_factor", 1.0}}), plain) << "the largest are those it started from";
}

TEST(SpecCache, TheTargetItselfOrItsFirstLayersMayRead) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(300);
  std::set<std::vector<int32_t>> choices;
  for (const char* layers : {"last_third", "last_two_thirds", "all", "final"}) {
    for (const double share : {0.3, 1.0}) {
      choices.insert(
          run(model, tokens, {}, {{"name", "speccache"}, {"layers", layers}, {"model_layers", share}, {"chunk", 64}})
              .record.recomputed);
    }
  }
  EXPECT_GE(choices.size(), 4U) << "what is read decides";
}

TEST(SpecCache, ComputesAndPredictsAsTheReference) { testing::expect_golden_reuse("speccache", 18); }

}  // namespace
}  // namespace kvarena
