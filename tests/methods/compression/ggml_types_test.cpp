// llama.cpp's types: decoded entries against its own functions (tests/golden/quantizers.py), and its rotation; what
// holds for all quantisers is in quantizers_test.cpp.

#include "kernels/hadamard/hadamard.h"
#include "tests/methods/compression/decoded_entries.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::PackedLayer;

TEST(Ggml, DecodesAsLlamaCpp) { testing::expect_golden_decoded("ggml_types", 7); }

/// Keys and values of one head of 128 channels after packing.
std::pair<std::vector<float>, std::vector<float>> packed(const std::vector<float>& keys,
                                                         const std::vector<float>& values, bool rotate) {
  const json spec = {{"name", "ggml_types"}, {"type_k", "q5_1"}, {"type_v", "q4_0"}, {"rotate", rotate}};
  PackedLayer layer(spec, {.q_heads = 1, .kv_heads = 1, .head_dim = 128, .dtype = DType::f32});
  const auto n = static_cast<int64_t>(keys.size()) / 128;
  layer.append(keys, values, n);
  layer.compress();
  std::pair<std::vector<float>, std::vector<float>> found = {std::vector<float>(keys.size()),
                                                             std::vector<float>(keys.size())};
  layer.packed()->read(0, found.first.data(), found.second.data());
  return found;
}

TEST(Ggml, RotatesKeysAsAWholeAndValuesInRunsOf64) {
  const std::vector<float> rows = testing::random_floats(16 * 128, "rows");
  std::vector<float> keys = rows;
  std::vector<float> values = rows;
  kernels::hadamard(keys.data(), 16, 128, 128);
  kernels::hadamard(values.data(), 32, 64, 64);
  auto [wanted_keys, wanted_values] = packed(keys, values, false);
  kernels::hadamard(wanted_keys.data(), 16, 128, 128);  // its own inverse
  kernels::hadamard(wanted_values.data(), 32, 64, 64);
  const auto [got_keys, got_values] = packed(rows, rows, true);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(got_keys[i], wanted_keys[i], 1e-5);
    EXPECT_NEAR(got_values[i], wanted_values[i], 1e-5);
  }
}

}  // namespace
}  // namespace kvarena
