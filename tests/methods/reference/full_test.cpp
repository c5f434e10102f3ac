// Full KV: sessions see the logits of the transformers library (tests/golden/architectures.py).

#include <gtest/gtest.h>

#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/golden_rows.h"

namespace kvarena {
namespace {

TEST(Full, SessionsSeeTheLogitsOfTransformers) {
  for (const std::string name : {"llama31", "qwen3", "mistral", "gemma3", "deepseek_v2_lite", "gpt_oss", "llama4"}) {
    SCOPED_TRACE(name);
    const testing::GoldenModel golden = testing::golden_model(name);
    Transformer model = golden.transformer(testing::kExact);
    const auto tokens = golden.fixture["prompt"].get<std::vector<int32_t>>();
    const auto next = golden.fixture["next"].get<std::vector<int32_t>>();
    const auto method = make_method({{"name", "full"}}, "test");
    std::vector<std::vector<float>> seen;
    SessionOptions options;
    options.forced = next;
    options.on_logits = [&](int64_t, std::span<const float> row) { seen.emplace_back(row.begin(), row.end()); };
    const auto session = start_session(model, prefill(model, tokens, method->needs()), *method, std::move(options));
    Session* const sessions[] = {session.get()};
    run_together(model, sessions);
    ASSERT_EQ(seen.size(), next.size());
    size_t compared = 0;
    for (size_t i = 0; i < seen.size(); ++i) {
      const std::string position = std::to_string(tokens.size() - 1 + i);
      if (!golden.fixture["rows"].contains(position)) continue;
      const auto expected = golden.fixture["rows"][position].get<std::vector<double>>();
      double largest = 0;
      for (const double logit : expected) largest = std::max(largest, std::abs(logit));
      for (size_t c = 0; c < expected.size(); ++c) {
        ASSERT_NEAR(seen[i][c], expected[c], testing::kTolerance * largest) << "position " << position;
      }
      ++compared;
    }
    EXPECT_EQ(compared, next.size());
  }
}

}  // namespace
}  // namespace kvarena
