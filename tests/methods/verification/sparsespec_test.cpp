// SparseSpec: what it verified stays true to full KV. What drafts attend to is restated in
// tests/methods/retrieval/pillar_attn_test.cpp.

#include <gtest/gtest.h>

#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_prompt;

struct Decoded {
  std::vector<int32_t> tokens;
  std::vector<VerifyRound> rounds;
  Activity activity;
  int64_t peak_bytes = 0;
};

Decoded decode(Transformer& model, const Prefill& prompt, const json& spec, double temperature) {
  const auto method = make_method(spec, "test");
  SessionOptions options{.stop = {.max_new_tokens = 120}, .sampling = {.temperature = temperature, .seed = 3}};
  const auto session = start_session(model, prompt, *method, std::move(options));
  Session* const sessions[] = {session.get()};
  run_together(model, sessions);
  return {session->tokens, session->rounds, session->activity, session->peak_bytes};
}

TEST(SparseSpec, EmitsWhatFullKvWouldFromOneResidentCache) {
  Transformer model = testing::tiny_model();
  for (const int64_t n : {2, 400}) {
    const Prefill prompt = prefill(model, tiny_prompt(n), {});
    for (const double temperature : {0.0, 0.8}) {
      const Decoded full = decode(model, prompt, {{"name", "full"}}, temperature);
      for (const int64_t length : {1, 8}) {
        const json spec = {{"name", "sparsespec"}, {"draft_length", length}, {"keep", 0.05}, {"min_tokens", 16}};
        const Decoded found = decode(model, prompt, spec, temperature);
        EXPECT_EQ(found.tokens, full.tokens) << n << " " << temperature << " " << length;
        if (n < 100) continue;
        EXPECT_GT(found.activity.entries_skipped, 0);
        EXPECT_LT(found.peak_bytes, full.peak_bytes * 3 / 2);  // no second copy of the cache
      }
    }
  }
}

TEST(SparseSpec, AWholeBudgetDraftsPerfectly) {
  Transformer model = testing::tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(200), {});
  const Decoded found = decode(model, prompt, {{"name", "sparsespec"}, {"min_tokens", 100000}}, 0);
  for (const VerifyRound& round : found.rounds) EXPECT_EQ(round.accepted, round.drafted);
}

}  // namespace
}  // namespace kvarena
