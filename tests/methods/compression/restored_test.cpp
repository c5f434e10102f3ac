// Quantisers whose entries are restored from more than codes: low-rank and sparse corrections, keys stored before their
// rotary rotation, two classes of entries.

#include <cmath>
#include <cstdio>
#include <limits>

#include "harness/core/error.h"
#include "tests/methods/compression/packed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::attend_one_query;
using testing::PackedLayer;
using testing::random_floats;

constexpr int64_t kDim = 64;

/// Observations as a prefill would make them: attention that grows with the entry's number modulo 10.
LayerObservations observations(int64_t n) {
  LayerObservations seen;
  seen.entries = n;
  for (int64_t h = 0; h < 6; ++h) {
    for (int64_t i = 0; i < n; ++i) seen.prompt_attention.push_back(static_cast<float>((i % 10) * (n - i)));
  }
  seen.hidden = random_floats(n * 8, "hidden");
  return seen;
}

PackedLayer filled(const json& spec, int64_t n, int64_t steps = 0) {
  PackedLayer layer(spec, testing::kCodecShape, &testing::turning_model());
  layer.append(n);
  layer.compress(observations(n));
  layer.decode(steps);
  return layer;
}

std::vector<json> specs() {
  return {{{"name", "gear"}},
          {{"name", "gear"}, {"bits", 2}, {"sparsity", 0}},
          {{"name", "gear"}, {"bits", 3}, {"rank_prefill", 0}, {"rank_decode", 0}},
          {{"name", "rotatekv"}},
          {{"name", "rotatekv"}, {"bits", 4}, {"massive", 0}},
          {{"name", "kvquant"}},
          {{"name", "kvquant"}, {"bits", 2}, {"qnorm", true}, {"sinks", 1}},
          {{"name", "kvquant"}, {"bits", 3}, {"codebook", "nf"}, {"outliers", 0}},
          {{"name", "kvquant"}, {"bits", 5}, {"codebook", "uniform"}},
          {{"name", "turboquant"}, {"variant", "prod"}},
          {{"name", "zipcache"}}};
}

TEST(Restored, AttentionEqualsAttentionOnDecodedEntries) {
  const auto q = random_floats(6 * kDim, "q");
  for (const json& spec : specs()) {
    const PackedLayer layer = filled(spec, 700, 130);
    EXPECT_EQ(layer.cache.layers[0].entries(1), 830) << spec;
    const auto fused = attend_one_query(layer.cache.layers[0], q);
    const auto plain = attend_one_query(layer.decoded().layers[0], q);
    for (size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(fused.out[i], plain.out[i], 1e-4) << spec << " " << i;
    for (size_t h = 0; h < 6; ++h) ASSERT_NEAR(fused.lse[h], plain.lse[h], 1e-4) << spec;
  }
}

TEST(Restored, ACloneHoldsTheSameBytesInItsOwnLedger) {
  for (const json& spec : specs()) {
    const PackedLayer layer = filled(spec, 300, 70);
    EXPECT_EQ(layer.cache.bytes(), layer.cache.ledger->current()) << spec;
    const KvCache copy = layer.cache.clone();
    EXPECT_EQ(copy.bytes(), copy.ledger->current()) << spec;
    const auto q = random_floats(6 * kDim, "q");
    EXPECT_EQ(attend_one_query(copy.layers[0], q).out, attend_one_query(layer.cache.layers[0], q).out) << spec;
  }
}

/// Mean squared error of keys and of values over all entries, with respect to what was appended (n = prompt only).
std::pair<double, double> errors(const json& spec, const std::vector<float>& rows, int64_t n) {
  PackedLayer layer(spec, testing::kCodecShape, &testing::turning_model());
  layer.append(rows, rows, n);
  layer.compress(observations(n));
  double k_error = 0;
  double v_error = 0;
  for (const auto& segment : layer.cache.layers[0].segments()) {
    for (int64_t head = 0; head < 2; ++head) {
      const auto positions = segment->positions(head);
      std::vector<float> k(positions.size() * kDim);
      std::vector<float> v(k.size());
      segment->read(head, k.data(), v.data());
      for (size_t i = 0; i < k.size(); ++i) {
        const double want = rows[positions[i / kDim] * 128 + head * kDim + static_cast<int64_t>(i % kDim)];
        k_error += (k[i] - want) * (k[i] - want);
        v_error += (v[i] - want) * (v[i] - want);
      }
    }
  }
  return {k_error / static_cast<double>(n * 128), v_error / static_cast<double>(n * 128)};
}

TEST(Restored, ErrorsFallWithBitsAndBytesArePrinted) {
  const auto rows = random_floats(512 * 128, "rows");
  for (const char* name : {"gear", "rotatekv", "kvquant"}) {
    double before = std::numeric_limits<double>::infinity();
    for (const int bits : {2, 3, 4, 5}) {
      const json spec = {{"name", name}, {"bits", bits}};
      const auto [keys, values] = errors(spec, rows, 512);
      const PackedLayer layer = filled(spec, 2048);
      std::printf("%-9s %d bits: mse keys %.5f values %.5f, %.3f bits an element\n", name, bits, keys, values,
                  8.0 * static_cast<double>(layer.cache.bytes()) / (2.0 * 2048 * 128));
      EXPECT_LT(keys + values, before) << spec;
      before = keys + values;
      // Even steps over what rotations make of numbers in [-1, 1): a token's spread is below 3.2.
      const double step = 3.2 / ((1 << bits) - 1);
      EXPECT_LT(keys, step * step / 12) << spec;
      EXPECT_LT(values, step * step / 12) << spec;
    }
  }
}

TEST(Gear, OutliersComeBackAndLowRankErrorVanishes) {
  auto rows = random_floats(256 * 128, "rows");
  rows[100 * 128 + 7] = 50;
  PackedLayer layer({{"name", "gear"}, {"bits", 2}}, testing::kCodecShape, &testing::turning_model());
  layer.append(rows, rows, 256);
  layer.compress();
  std::vector<float> k(256 * kDim);
  std::vector<float> v(k.size());
  layer.packed()->read(0, k.data(), v.data());
  EXPECT_EQ(k[100 * kDim + 7], 50);
  EXPECT_EQ(v[100 * kDim + 7], 50);
  const json plain = {{"name", "gear"}, {"bits", 2}, {"sparsity", 0}, {"rank_prefill", 0}};
  const json corrected = {{"name", "gear"}, {"bits", 2}, {"sparsity", 0}, {"rank_prefill", 32}};
  const auto smooth = random_floats(256 * 128, "smooth");
  EXPECT_LT(errors(corrected, smooth, 256).first, 0.6 * errors(plain, smooth, 256).first);
}

TEST(KvQuant, OutliersAreExactAndMaskedAsTheAuthorsDo) {
  auto rows = random_floats(400 * 128, "rows");
  rows[37 * 128 + 70] = -30;
  PackedLayer layer({{"name", "kvquant"}, {"bits", 2}}, testing::kCodecShape, &testing::turning_model());
  layer.append(rows, rows, 400);
  layer.compress();
  std::vector<float> k(400 * kDim);
  std::vector<float> v(k.size());
  layer.packed()->read(1, k.data(), v.data());
  EXPECT_EQ(v[37 * kDim + 6], -30);
  EXPECT_NEAR(k[37 * kDim + 6], -30, 0.03);  // through f16 before the rotation
}

TEST(KvQuant, WithoutOutliersTheErrorIsHalfAGap) {
  const auto rows = random_floats(300 * 128, "rows");
  PackedLayer layer({{"name", "kvquant"}, {"bits", 4}, {"codebook", "uniform"}, {"outliers", 0}}, testing::kCodecShape,
                    &testing::turning_model());
  layer.append(rows, rows, 300);
  layer.compress();
  std::vector<float> v(300 * kDim);
  layer.packed()->read(0, nullptr, v.data());
  for (int64_t t = 0; t < 300; ++t) {
    for (int64_t c = 0; c < kDim; ++c) ASSERT_NEAR(v[t * kDim + c], rows[t * 128 + c], 1.0 / 15 + 0.01);
  }
}

TEST(RotateKv, SpreadsAnOutlierChannelAndKeepsMassiveTokens) {
  auto rows = random_floats(256 * 128, "rows");
  for (int64_t t = 0; t < 256; ++t) rows[t * 128 + 5] = 20 + rows[t * 128 + 5];
  const json spec = {{"name", "rotatekv"}, {"bits", 4}, {"massive", 0}};
  const json plain = {{"name", "kvtuner"}, {"base", "per_token"}, {"bits", {4}}};
  EXPECT_LT(errors(spec, rows, 256).first, 0.5 * errors(plain, rows, 256).first);

  const PackedLayer layer = filled({{"name", "rotatekv"}, {"massive", 3}}, 200);
  const auto seen = observations(200);
  std::vector<size_t> order(seen.hidden.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, std::ranges::greater{}, [&](size_t i) { return std::fabs(seen.hidden[i]); });
  const auto apart = layer.cache.layers[0].segments()[0]->positions(1);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::ranges::count(apart, static_cast<int32_t>(order[i] / 8)) == 1) << order[i] / 8;
  }
}

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
    std::vector<float> k(positions.size() * kDim);
    segments[s]->read(1, k.data(), nullptr);
    for (size_t i = 0; i < k.size(); ++i) {
      const double e = k[i] - rows[positions[i / kDim] * 128 + kDim + static_cast<int64_t>(i % kDim)];
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

TEST(TurboQuant, TheSketchIsUnbiased) {
  // <q, k^> over many keys equals <q, k> on average; without the sketch the levels shrink it (by D = 0.117 at 2 bits).
  const auto rows = random_floats(4000 * 128, "rows");
  const auto q = random_floats(kDim, "q");
  const auto slope = [&](const json& spec) {
    PackedLayer layer(spec, testing::kCodecShape, &testing::turning_model());
    layer.append(rows, rows, 4000);
    layer.compress(observations(4000));
    std::vector<float> k(4000 * kDim);
    layer.packed()->read(0, k.data(), nullptr);
    double both = 0;
    double square = 0;
    for (int64_t t = 0; t < 4000; ++t) {
      double want = 0;
      double got = 0;
      for (int64_t c = 0; c < kDim; ++c) {
        want += static_cast<double>(q[c]) * rows[t * 128 + c];
        got += static_cast<double>(q[c]) * k[t * kDim + c];
      }
      both += want * got;
      square += want * want;
    }
    return both / square;
  };
  EXPECT_NEAR(slope({{"name", "turboquant"}, {"variant", "prod"}, {"bits", 3}}), 1, 0.02);
  EXPECT_NEAR(slope({{"name", "turboquant"}, {"norm_correction", false}, {"bits", 2}}), 0.883, 0.02);
}

TEST(Restored, RefuseEntriesThatAreNotNumbers) {
  for (const json& spec : specs()) {
    PackedLayer layer(spec, testing::kCodecShape, &testing::turning_model());
    std::vector<float> keys(64 * 128, 1.0F);
    keys[3 * 128 + 5] = std::nanf("");
    layer.append(keys, keys, 64);
    EXPECT_THROW(layer.compress(observations(64)), UserError) << spec;
  }
}

TEST(Restored, PackWhatADroppingMethodLeaves) {
  for (json spec : specs()) {
    if (spec["name"] == "zipcache") continue;
    spec["over"] = {{"name", "knorm"}, {"keep", 0.5}};
    const PackedLayer layer = filled(spec, 256, 3);
    EXPECT_EQ(layer.cache.layers[0].entries(0), 131) << spec;
    const auto q = random_floats(6 * kDim, "q");
    const auto fused = attend_one_query(layer.cache.layers[0], q);
    const auto plain = attend_one_query(layer.decoded().layers[0], q);
    for (size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(fused.out[i], plain.out[i], 1e-4) << spec;
  }
}

}  // namespace
}  // namespace kvarena
