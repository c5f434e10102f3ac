// ZipCache: who is salient and in how many bits, by hand and by its authors' code (tests/golden/zipcache.py).

#include "kernels/common/dtype.h"
#include "tests/methods/compression/restored_layer.h"
#include "tests/support/golden.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::kRestoredDim;
using testing::observations;
using testing::PackedLayer;
using testing::random_floats;

TEST(ZipCache, SalienceIsNormalisedAndSalientEntriesAreFiner) {
  PackedLayer layer({{"name", "zipcache"}}, testing::kCodecShape, &testing::turning_model());
  layer.append(100);
  layer.compress(observations(100));  // saliency i % 10 for every entry, wherever it lies
  const auto& segments = layer.cache.layers[0].segments();
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_EQ(segments[0]->entries(0), 60);
  for (const int32_t p : segments[0]->positions(0)) EXPECT_GE(p % 10, 4);
  const auto rows = random_floats(100 * 128, "keys", 1);
  double error[2] = {};
  for (size_t s = 0; s < 2; ++s) {
    const auto positions = segments[s]->positions(1);
    std::vector<float> k(positions.size() * kRestoredDim);
    segments[s]->read(1, k.data(), nullptr);
    for (size_t i = 0; i < k.size(); ++i) {
      const double e =
          k[i] - rows[positions[i / kRestoredDim] * 128 + kRestoredDim + static_cast<int64_t>(i % kRestoredDim)];
      error[s] = std::max(error[s], std::fabs(e));
    }
  }
  EXPECT_LT(error[0], 1.0 / 15 + 0.02);
  EXPECT_LT(error[1], 1.0 / 3 + 0.02);
  EXPECT_GT(error[1], 2 * error[0]);
  layer.decode(99);
  EXPECT_EQ(layer.cache.layers[0].segments().size(), 3U);
  layer.decode(1);
  EXPECT_EQ(layer.cache.layers[0].segments().size(), 5U);
  EXPECT_EQ(layer.cache.layers[0].tail().entries(0), 0);
}

/// Rows of the script: random, a few channels larger than the others, in bfloat16.
std::vector<float> golden_rows(const std::string& what) {
  std::vector<float> rows = random_floats(100 * 64, what);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = kernels::bf16_to_f32(kernels::f32_to_bf16(i % 32 % 7 == 3 ? 8 * rows[i] : rows[i]));
  }
  return rows;
}

TEST(ZipCache, SplitsAndDecodesAsItsAuthorsCode) {
  const json golden = testing::golden("zipcache.json");
  const LayerShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = DType::f32};
  LayerObservations seen{.entries = 100};
  for (const float x : random_floats(4 * 100, "zipcache attention")) seen.prompt_attention.push_back(1 + x);
  ASSERT_EQ(golden["cases"].size(), 2U);
  for (const json& one : golden["cases"]) {
    PackedLayer layer(one["spec"], shape);
    layer.append(golden_rows("zipcache keys"), golden_rows("zipcache values"), 100);
    layer.compress(seen);
    const auto& segments = layer.cache.layers[0].segments();
    for (int64_t head = 0; head < 2; ++head) {
      const json& expected = one["heads"][head];
      EXPECT_EQ(segments[0]->positions(head), expected["salient"].get<std::vector<int32_t>>());
      for (const auto& segment : {segments[0].get(), segments[1].get()}) {
        const std::vector<int32_t> positions = segment->positions(head);
        std::vector<float> keys(positions.size() * 32);
        std::vector<float> values(keys.size());
        segment->read(head, keys.data(), values.data());
        for (size_t i = 0; i < keys.size(); ++i) {
          if (positions[i / 32] % 4 != 0) continue;
          const size_t at = positions[i / 32] / 4 * 32 + i % 32;
          for (const auto& [side, got] : {std::pair{"keys", keys[i]}, std::pair{"values", values[i]}}) {
            if (expected[side][at].is_null()) continue;
            // Scales and minima are kept in float16 here, in float32 there: half a unit of 8 and fifteen of a scale
            // of 1.
            ASSERT_NEAR(got, expected[side][at].get<double>(), 0x1p-7) << side << " " << at << ", head " << head;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvarena
