#pragma once
// Decoded entries against fixtures of tests/golden/tile_quantizers.py.

#include "tests/methods/compression/decoded_entries.h"

namespace kvarena::testing {

inline constexpr int64_t kTileTokens = 128;
inline constexpr LayerShape kTileShape{.q_heads = 2, .kv_heads = 2, .head_dim = 32, .dtype = DType::f32};

/// The script's entries(): some tokens are five times as large, some channels four times, some lie about 2.
inline std::vector<float> tile_rows(const char* what) {
  std::vector<float> rows = random_floats(kTileTokens * 64, what);
  for (int64_t i = 0; i < kTileTokens * 64; ++i) {
    const int64_t token = i / 64, channel = i % 32;
    rows[i] = rows[i] * (token % 11 == 3 ? 5.0F : 1.0F) * (channel % 7 == 2 ? 4.0F : 1.0F);
    rows[i] += channel % 5 == 1 ? 2.0F : 0.0F;
  }
  return rows;
}

/// Compares every case of tile_quantizers/METHOD.json. What is stored in f16 is off by at most 2^-11 of itself, and is
/// multiplied up to twice; a wrong code of 4 bits in one number of a rotated row would move all of them by a 1/80 of
/// the range. Where a token's zero point is stored before the rotation is undone, its error gathers (gathered_unit).
inline void expect_golden_tiles(const std::string& method_name, bool rotated_offset = false) {
  const nlohmann::json cases = golden("tile_quantizers/" + method_name + ".json")["cases"];
  ASSERT_EQ(cases.size(), 2);
  for (const nlohmann::json& c : cases) {
    PackedLayer layer(c["method"], kTileShape);
    layer.append(tile_rows("keys"), tile_rows("values"), kTileTokens);
    layer.compress();
    ASSERT_EQ(layer.packed()->entries(0), kTileTokens) << c["method"];
    for (int64_t head = 0; head < 2; ++head) {
      std::vector<float> keys(kTileTokens * 32), values(keys.size());
      layer.packed()->read(head, keys.data(), values.data());
      for (const auto& [name, got] : {std::pair{"keys", &keys}, std::pair{"values", &values}}) {
        ASSERT_EQ(c[name].size(), 20);
        for (const nlohmann::json& row : c[name]) {
          if (row[0] != head) continue;
          const auto want = row[2].get<std::vector<double>>();
          const int64_t first = 32 * row[1].get<int64_t>();
          double largest = 0;
          for (const double x : want) largest = std::max(largest, std::fabs(x));
          for (int64_t i = 0; i < 32; ++i) {
            const double allowed = rotated_offset ? gathered_unit(want, i, 32) : 0x1p-9 * largest;
            ASSERT_NEAR((*got)[first + i], want[i], allowed) << c["method"] << name << row[1] << " " << i;
          }
        }
      }
    }
  }
}

}  // namespace kvarena::testing
