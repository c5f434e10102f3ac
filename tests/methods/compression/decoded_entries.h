#pragma once
// Decoded entries against fixtures of tests/golden/quantizers.py.

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/methods/compression/packed_layer.h"
#include "tests/support/golden.h"

namespace kvarena::testing {

/// One unit in the last place of the largest number that `stored` (scale or zero point) has to express.
inline double unit(const std::vector<double>& expected, size_t at, int64_t dim, const std::string& stored) {
  double largest = 0;
  const size_t first = at / dim * dim;
  for (size_t i = first; i < first + static_cast<size_t>(dim); ++i) largest = std::max(largest, std::fabs(expected[i]));
  return largest * (stored == "bf16" ? 0x1p-8 : 0x1p-11) + 1e-4 * std::fabs(expected[at]);
}

/// RotateKV's whole zero point z is stored as the offset -s z in f16, whose error is at most 2^-11 of the largest
/// rotated number, itself at most the row's length. All channels of a token share that error, and undoing the Hadamard
/// rotation gathers it in one: sqrt(dim) times as large. A wrong code moves every number of the token, by a step over
/// sqrt(dim).
inline double gathered_unit(const std::vector<double>& expected, size_t at, int64_t dim) {
  double squares = 0;
  const size_t first = at / dim * dim;
  for (size_t i = first; i < first + static_cast<size_t>(dim); ++i) squares += expected[i] * expected[i];
  return 0x1p-11 * std::sqrt(squares * static_cast<double>(dim)) + 1e-4 * std::fabs(expected[at]);
}

/// Compares every case of quantizers/METHOD.json.
inline void expect_golden_decoded(const std::string& method_name, size_t cases) {
  const nlohmann::json given = golden("quantizers/rows.json");
  const nlohmann::json found = golden("quantizers/" + method_name + ".json")["cases"];
  ASSERT_EQ(found.size(), cases);
  const auto d = given["head_dim"].get<int64_t>();
  const auto n = given["tokens"].get<int64_t>();
  const auto rows = given["rows"].get<std::vector<float>>();
  for (const nlohmann::json& c : found) {
    PackedLayer layer(c["method"], {.q_heads = 1, .kv_heads = 1, .head_dim = d, .dtype = DType::bf16});
    layer.append(rows, rows, n);
    layer.compress();
    auto& packed = const_cast<PackedSegment&>(*layer.packed());
    if (packed.unpacked_values() > 0) packed.pack_values(packed.unpacked_values());
    std::vector<float> keys(rows.size());
    std::vector<float> values(rows.size());
    packed.read(0, keys.data(), values.data());
    const bool rotated_offset = c["method"]["name"] == "rotatekv";
    for (const auto& [name, got] : {std::pair{"keys", &keys}, std::pair{"values", &values}}) {
      const auto want = c[c.contains(name) ? name : "keys"].get<std::vector<double>>();
      for (size_t i = 0; i < want.size(); ++i) {
        const double allowed = rotated_offset ? gathered_unit(want, i, d) : unit(want, i, d, c["stored"]);
        ASSERT_NEAR((*got)[i], want[i], allowed) << c["method"] << " " << name << " " << i;
      }
    }
  }
}

}  // namespace kvarena::testing
