// RestoreKV: what kvpress keeps beside its restoring tokens, and their entries (tests/golden/learned_kvpress.py).

#include "harness/core/error.h"
#include "tests/methods/compression/learned_golden.h"
#include "tests/support/tiny_adapter.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr int64_t kTokens = 5;

class RestoreKvGolden : public testing::LearnedGolden {
 protected:
  RestoreKvGolden() : LearnedGolden("restorekv") {}
  void SetUp() override {
    LearnedGolden::SetUp();
    testing::write_tiny_adapter(folder_ / "adapter", folder_ / "base", kTokens);
  }
  [[nodiscard]] json spec() const {
    return {{"name", "restorekv"},
            {"weights", (folder_ / "adapter").string()},
            {"scorer", {{"name", "kvzip"}, {"form", "kvpress"}, {"chunk", golden_["chunk"]}}}};
  }
  [[nodiscard]] KvCache compressed(double keep) {
    json settings = spec();
    settings["keep"] = keep;
    const auto method = make_method(settings, "test");
    const Prefill prompt = prefill(model_, golden_["cases"][0]["tokens"].get<std::vector<int32_t>>(), method->needs());
    Activity activity;
    return compress_prompt(prompt, *method, activity);
  }
};

TEST_F(RestoreKvGolden, KeepsWhatTheBudgetLeavesBesideItsTokens) {
  expect_equal("restorekv bare", spec());
  expect_equal("restorekv template", spec(), golden_["prefix"].get<int64_t>());
}

TEST_F(RestoreKvGolden, TokensReadTheWholePromptUnderTheAdapter) {
  const KvCache cache = compressed(0.5);
  size_t at = 0;
  for (const LayerCache& layer : cache.layers) {
    ASSERT_EQ(layer.segments().size(), 2U);
    const Segment& restored = *layer.segments().front();
    const int64_t d = layer.shape().head_dim, heads = layer.shape().kv_heads;
    for (int64_t head = 0; head < heads; ++head) {
      ASSERT_EQ(restored.entries(head), kTokens);
      std::vector<float> keys(static_cast<size_t>(kTokens * d)), values(keys.size());
      restored.read(head, keys.data(), values.data());
      for (int64_t i = 0; i < kTokens * d; ++i) {
        const size_t place = at + static_cast<size_t>((i / d * heads + head) * d + i % d);
        EXPECT_NEAR(keys[i], golden_["entries"][0][place].get<float>(), 1e-4);
        EXPECT_NEAR(values[i], golden_["entries"][1][place].get<float>(), 1e-4);
      }
    }
    at += static_cast<size_t>(kTokens * heads * d);
  }
}

TEST_F(RestoreKvGolden, TokensCountInTheBudget) {
  int64_t entries = 0;
  const KvCache cache = compressed(0.25);
  for (const LayerCache& layer : cache.layers) {
    for (int64_t head = 0; head < layer.shape().kv_heads; ++head) entries += layer.entries(head);
  }
  EXPECT_EQ(entries, 3 * 2 * 120 / 4);
}

TEST_F(RestoreKvGolden, AnAdapterWithoutTokensIsRefused) {
  std::filesystem::remove_all(folder_ / "adapter");
  testing::write_tiny_adapter(folder_ / "adapter", folder_ / "base", 0);
  EXPECT_THROW((void)compressed(0.5), UserError);
}

}  // namespace
}  // namespace kvarena
