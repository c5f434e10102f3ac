#pragma once
// Cosines and sines of rotary rotations, which layers and steps ask for again and again.

#include <cstdint>
#include <vector>

namespace kvarena {

/// Cosines and sines of positions 0, 1, ..
struct RotationTables {
  std::vector<float> cos, sin;            // [positions, half]
  std::vector<float> cell_cos, cell_sin;  // the same as cells of keys lie: [positions / 16, half, 16]
};

/// For each position up to this one at least; frequencies [half] in radians per position. Valid until the thread asks
/// again.
[[nodiscard]] const RotationTables& rotation_tables_up_to(const std::vector<double>& frequencies, int32_t position);

}  // namespace kvarena
