// Requirements on quantisers whose entries are restored from more than codes: low-rank and sparse corrections, keys
// stored before their rotary rotation, two classes of entries.

#include <cmath>
#include <cstdio>
#include <limits>

#include "harness/core/error.h"
#include "tests/methods/compression/restored_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::attend_one_query;
using testing::errors;
using testing::filled;
using testing::kRestoredDim;
using testing::observations;
using testing::PackedLayer;
using testing::random_floats;

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
  const auto q = random_floats(6 * kRestoredDim, "q");
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
    const auto q = random_floats(6 * kRestoredDim, "q");
    EXPECT_EQ(attend_one_query(copy.layers[0], q).out, attend_one_query(layer.cache.layers[0], q).out) << spec;
  }
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
    const auto q = random_floats(6 * kRestoredDim, "q");
    const auto fused = attend_one_query(layer.cache.layers[0], q);
    const auto plain = attend_one_query(layer.decoded().layers[0], q);
    for (size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(fused.out[i], plain.out[i], 1e-4) << spec;
  }
}

}  // namespace
}  // namespace kvarena
