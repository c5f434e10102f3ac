// QuantSpec's cache: both planes against its authors' formulas (tests/golden/quantspec.py), when groups leave the
// buffer, and attention on the planes.

#include <cmath>

#include "harness/cache/hierarchical_segment.h"
#include "harness/core/files.h"
#include "tests/methods/compression/packed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::attend_one_query;
using testing::PackedLayer;
using testing::random_floats;

const HierarchicalSegment& planes_of(const PackedLayer& layer) {
  return dynamic_cast<const HierarchicalSegment&>(*layer.packed());
}

TEST(QuantSpecKv, BothPlanesAreThoseOfTheAuthorsFormulas) {
  const json golden = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/quantspec.json"));
  const auto n = golden["tokens"].get<int64_t>();
  const auto d = golden["head_dim"].get<int64_t>();
  auto rows = random_floats(n * d, "quantspec");
  for (size_t i = 0; i < rows.size(); ++i) rows[i] *= static_cast<float>(1 + i % 7);
  PackedLayer layer({{"name", "quantspec_kv"}, {"group_size", golden["group_size"]}, {"buffer", 0}},
                    {.q_heads = 1, .kv_heads = 1, .head_dim = d, .dtype = DType::bf16});
  layer.append(rows, rows, n);
  layer.compress();
  ASSERT_NE(layer.packed(), nullptr);
  const HierarchicalSegment& planes = planes_of(layer);
  for (const char* plane : {"upper", "both"}) {
    std::vector<float> keys(rows.size());
    std::vector<float> values(rows.size());
    const Segment& read = std::string(plane) == "upper" ? static_cast<const Segment&>(planes.upper()) : planes;
    read.read(0, keys.data(), values.data());
    for (const auto& [side, got] : {std::pair{"keys", &keys}, std::pair{"values", &values}}) {
      const auto want = golden[side][plane].get<std::vector<double>>();
      for (size_t i = 0; i < want.size(); ++i) {  // decoded in another order of operations
        ASSERT_NEAR((*got)[i], want[i], 4e-6 * (1 + std::fabs(want[i]))) << side << " " << plane << " " << i;
      }
    }
  }
}

TEST(QuantSpecKv, FullGroupsLeaveTheBufferAtOnce) {
  const LayerShape shape{.q_heads = 2, .kv_heads = 1, .head_dim = 64, .dtype = DType::bf16};
  for (const auto& [prompt, steps, packed] : {std::tuple{40, 0, 0},
                                              {63, 0, 0},
                                              {64, 0, 32},
                                              {65, 0, 32},
                                              {100, 0, 64},
                                              {63, 1, 32},
                                              {64, 31, 32},
                                              {64, 32, 64},
                                              {1, 200, 160}}) {
    PackedLayer layer({{"name", "quantspec_kv"}, {"group_size", 32}, {"buffer", 32}}, shape);
    layer.prefill(prompt);
    layer.decode(steps);
    const int64_t found = layer.packed() != nullptr ? layer.packed()->entries(0) : 0;
    EXPECT_EQ(found, packed) << prompt << " + " << steps;
    EXPECT_EQ(layer.values_in_16_bits(), prompt + steps - packed) << prompt << " + " << steps;
  }
}

TEST(QuantSpecKv, StoresEightBitsAndAQuarter) {
  const LayerShape shape{.q_heads = 2, .kv_heads = 1, .head_dim = 128, .dtype = DType::bf16};
  PackedLayer layer({{"name", "quantspec_kv"}, {"buffer", 0}}, shape);
  layer.prefill(1024);
  const double elements = 2 * 1024 * 128;
  EXPECT_EQ(8.0 * static_cast<double>(layer.packed()->bytes()) / elements, 8.25);
  EXPECT_EQ(8.0 * static_cast<double>(planes_of(layer).upper().bytes()) / elements, 4.25);
}

TEST(QuantSpecKv, AttentionIsThatOverWhatThePlanesDecodeTo) {
  const LayerShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = DType::bf16};
  PackedLayer layer({{"name", "quantspec_kv"}, {"group_size", 32}, {"buffer", 32}}, shape);
  layer.prefill(700);
  layer.decode(5);
  const auto q = random_floats(shape.q_heads * shape.head_dim, "q");
  const auto expect_near = [](const testing::Attended& got, const testing::Attended& want, double tolerance) {
    for (size_t i = 0; i < got.out.size(); ++i) ASSERT_NEAR(got.out[i], want.out[i], tolerance) << i;
    for (size_t i = 0; i < got.lse.size(); ++i) ASSERT_NEAR(got.lse[i], want.lse[i], tolerance) << i;
  };
  LayerCache& cache = layer.cache.layers[0];
  expect_near(attend_one_query(cache, q), attend_one_query(layer.decoded().layers[0], q), 1e-5);

  // The upper plane alone, as drafts read it: a layer of the same upper codes and nothing below.
  const UpperPlaneView view(cache);
  KvCache dense(1, {.q_heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = DType::f32});
  const int64_t n = cache.entries(0);
  std::vector<float> keys(static_cast<size_t>(n * 128));
  std::vector<float> values(keys.size());
  for (int64_t h = 0; h < 2; ++h) {
    std::vector<float> k(static_cast<size_t>(n * 64));
    std::vector<float> v(k.size());
    view.read(h, k.data(), v.data());
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(&k[i * 64], 64, &keys[i * 128 + h * 64]);
      std::copy_n(&v[i * 64], 64, &values[i * 128 + h * 64]);
    }
  }
  dense.layers[0].append(keys.data(), values.data(), n, 128, 0);
  cache.view = view.clone(cache.ledger());
  expect_near(attend_one_query(cache, q), attend_one_query(dense.layers[0], q), 1e-3);  // on codes, in integers
}

}  // namespace
}  // namespace kvarena
