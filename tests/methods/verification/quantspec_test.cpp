// QuantSpec: speculation on the upper plane equals decoding on both. The restatement is the decoding of quantspec_kv,
// whose planes are compared with the authors' formulas in tests/methods/compression/quantspec_kv_test.cpp.

#include <gtest/gtest.h>

#include "harness/engine/session/session.h"
#include "harness/method/verifier.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_prompt;

struct Decoded {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
  std::vector<VerifyRound> rounds;
  Activity activity;
};

Decoded decode(Transformer& model, const Prefill& prompt, const json& spec, double temperature) {
  const auto method = make_method(spec, "test");
  Decoded result;
  SessionOptions options{.stop = {.max_new_tokens = 150}, .sampling = {.temperature = temperature, .seed = 3}};
  options.on_logits = [&](int64_t, std::span<const float> row) { result.logits.emplace_back(row.begin(), row.end()); };
  const auto session = start_session(model, prompt, *method, options);
  Session* const sessions[] = {session.get()};
  run_together(model, sessions);
  result.tokens = session->tokens;
  result.rounds = session->rounds;
  result.activity = session->activity;
  return result;
}

TEST(QuantSpec, SpeculationEqualsDecodingOnBothPlanesWhileGroupsLeaveTheBuffer) {
  Transformer model = testing::tiny_model();
  for (const int64_t n : {3, 90, 130}) {
    const Prefill prompt = prefill(model, tiny_prompt(n), {});
    for (const double temperature : {0.0, 0.8}) {
      for (const int64_t length : {1, 5, 40}) {
        const json cache = {{"name", "quantspec_kv"}, {"group_size", 16}, {"buffer", 16}};
        const json spec = {{"name", "quantspec"}, {"draft_length", length}, {"group_size", 16}, {"buffer", 16}};
        const Decoded plain = decode(model, prompt, cache, temperature);
        const Decoded found = decode(model, prompt, spec, temperature);
        EXPECT_EQ(found.tokens, plain.tokens) << n << " " << temperature << " " << length;
        EXPECT_EQ(found.logits, plain.logits) << n << " " << temperature << " " << length;
        EXPECT_EQ(found.activity.entries_packed, plain.activity.entries_packed);
        EXPECT_GT(found.activity.tokens_accepted, 0);
        EXPECT_LT(found.rounds.size(), found.tokens.size());
      }
    }
  }
}

TEST(QuantSpec, DraftsReadTheUpperPlane) {
  // With one token drafted, the drafted token is that of decoding on 4 bits from the same state; where 4 bits and 8
  // disagree, the draft is rejected.
  Transformer model = testing::tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(400), {});
  const Decoded eight = decode(model, prompt, {{"name", "quantspec_kv"}, {"group_size", 16}, {"buffer", 0}}, 0);
  const Decoded four =
      decode(model, prompt, {{"name", "quantspec_kv"}, {"group_size", 16}, {"buffer", 0}, {"read", "upper"}}, 0);
  EXPECT_EQ(eight.tokens.front(), four.tokens.front());  // from the prompt, before anything is packed
  EXPECT_NE(eight.logits[1], four.logits[1]);
  const Decoded found =
      decode(model, prompt, {{"name", "quantspec"}, {"draft_length", 1}, {"group_size", 16}, {"buffer", 0}}, 0);
  EXPECT_EQ(found.tokens, eight.tokens);
  EXPECT_EQ(found.rounds.front().accepted == 1, four.tokens[1] == eight.tokens[1]);
}

}  // namespace
}  // namespace kvarena
