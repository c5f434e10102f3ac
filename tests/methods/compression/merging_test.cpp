// Merging of values that leave: by hand, and kvpress's MergingPress (tests/golden/merging_kvpress.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::OneHead;

std::vector<float> values_of(const EntrySegment& entries, int64_t head) {
  std::vector<float> values(static_cast<size_t>(entries.entries(head) * entries.shape().head_dim));
  entries.read(head, nullptr, values.data());
  return values;
}

TEST(Merging, AValueJoinsTheEntryOfTheMostSimilarKey) {
  const auto first_channels = [](const json& settings) {
    OneHead layer({});
    layer.append({{1, 0}, {0, 1}, {3, 0}}, {{1}, {5}, {3}});  // the third, longest key leaves for the first
    layer.seen.entries = 3;
    json spec = {{"name", "knorm"}, {"tokens", 2}};
    spec.update(settings);
    EXPECT_EQ(layer.compress(spec), (OneHead::List{0, 1}));
    const std::vector<float> values = values_of(layer.cache.layers[0].tail(), 0);
    return std::vector<float>{values[0], values[OneHead::kDim]};
  };
  EXPECT_EQ(first_channels(json::object()), (std::vector<float>{1, 5}));
  const std::vector<float> merged = first_channels({{"merge", true}});
  EXPECT_NEAR(merged[0], (1 + 0.75 * 3) / 1.75, 1e-5);  // weight 3 / (3 + 1)
  EXPECT_EQ(merged[1], 5);
}

TEST(Merging, ValuesAreThoseOfKvpress) {
  Transformer model = testing::tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  for (const json& prompt : testing::golden("merging.json")["prompts"]) {
    const Prefill start = prefill(model, prompt["tokens"].get<std::vector<int32_t>>(), {});
    for (const json& one : prompt["cases"]) {
      Activity activity;
      const KvCache cache = compress_prompt(start, *make_method(one["spec"], "golden"), activity);
      for (size_t layer = 0; layer < one["layers"].size(); ++layer) {
        const EntrySegment& tail = cache.layers[layer].tail();
        const int64_t d = tail.shape().head_dim;
        for (int64_t head = 0; head < tail.shape().kv_heads; ++head) {
          const json& expected = one["layers"][layer];
          ASSERT_EQ(tail.positions(head), expected["kept"][head].get<std::vector<int32_t>>()) << one["spec"];
          const std::vector<float> values = values_of(tail, head);
          for (int64_t i = 0; i < tail.entries(head); ++i) {
            double sum = 0;
            for (int64_t c = 0; c < d; ++c)
              sum += values[i * d + c] * static_cast<double>(c + 1) / static_cast<double>(d);
            EXPECT_NEAR(sum, expected["sums"][head][i].get<double>(), 2e-5) << one["spec"] << ", entry " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvarena
