// The method that README.md shows works as it says.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;

TEST(ReadmePlugin, IsRegisteredWithItsParameters) {
  const MethodEntry* entry = find_method("value_norm");
  ASSERT_NE(entry, nullptr);
  std::vector<std::string> names;
  for (const ParameterInfo& parameter : entry->parameters()) names.push_back(parameter.name);
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "keep",           "tokens",        "bytes",         "threshold",     "protect_sinks",    "protect_window",
          "protect_prompt", "budget_rule",   "prefill_chunk", "prefill_block", "decode_interval",  "decode_tokens",
          "decode_keep",    "decode_scorer", "positions",     "merge",         "merge_similarity", "merge_share",
          "order",          "layers"}));
  EXPECT_EQ(check_method({{"name", "value_norm"}, {"keep", 0.5}, {"order", 0}}, "m").size(), 1U);
}

TEST(ReadmePlugin, DropsEntriesAndDraftsForAVerifier) {
  Transformer model = testing::tiny_model();
  const Prefill prompt = prefill(model, testing::tiny_prompt(200), {});
  const auto run = [&](const json& spec) {
    const auto method = make_method(spec, "test");
    auto session = start_session(model, prompt, *method, {.stop = {.max_new_tokens = 30}});
    Session* const one[] = {session.get()};
    run_together(model, one);
    return session;
  };
  const json spec = {{"name", "value_norm"}, {"keep", 0.25}};
  const auto full = run({{"name", "full"}});
  const auto dropped = run(spec);
  EXPECT_EQ(dropped->activity.entries_dropped, 3 * 2 * 150);  // layers, kv heads, entries
  EXPECT_LT(dropped->resident_bytes, full->resident_bytes / 3);
  EXPECT_EQ(run({{"name", "vericache"}, {"drafter", spec}})->tokens, full->tokens);
}

}  // namespace
}  // namespace kvarena
