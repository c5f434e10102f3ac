#include "kernels/rope/rope.h"

#include <cmath>

#include "kernels/common/parallel.h"
#include "kernels/rope/rope_paths.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kWorthThreads = 64;  // tokens or cells

template <class Body>
void for_each(int64_t count, const Body& body) {
  if (count >= kWorthThreads)
    return parallel_for((count + 15) / 16, [&](int64_t block) {
      for (int64_t i = block * 16; i < std::min(count, block * 16 + 16); ++i) body(i);
    });
  for (int64_t i = 0; i < count; ++i) body(i);
}

auto cell_rotation(const Cells& keys, int64_t half) {
  require(keys.kind == CellKind::keys && 2 * half <= keys.head_dim, "rotate_cells: keys only, rotary at most head_dim");
  const RopeTable* fast = KVARENA_ACTIVE_TABLE(rope_table);
  return fast != nullptr ? fast->rotate_cell : rotate_cell_reference;
}

void* cell_of(const Cells& keys, int64_t cell) {
  return static_cast<char*>(keys.data) + cell * cell_bytes(kCell, keys.head_dim, keys.dtype);
}

}  // namespace

void rotation_tables(const int32_t* positions, int64_t count, const double* inv_freq, int64_t half, float magnitude,
                     float* cos, float* sin) {
  for_each(count, [&](int64_t r) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(positions[r]) * static_cast<float>(inv_freq[i]);
      cos[r * half + i] = static_cast<float>(std::cos(angle) * magnitude);
      sin[r * half + i] = static_cast<float>(std::sin(angle) * magnitude);
    }
  });
}

void rotate(const RotateArgs& args) {
  require(args.rotary % 2 == 0 && args.rotary <= args.head_dim, "rotate: rotary must be even and at most head_dim");
  const RopeTable* fast = KVARENA_ACTIVE_TABLE(rope_table);
  const auto one = fast != nullptr ? fast->rotate_token : rotate_token_reference;
  for_each(args.tokens, [&](int64_t token) { one(args, token); });
}

void rotate_cells(const Cells& keys, int64_t entry, int64_t count, const float* cos, const float* sin, int64_t half,
                  int64_t table_stride) {
  if (count <= 0) return;
  const int64_t first_cell = entry / kCell, last_cell = (entry + count - 1) / kCell;
  const auto one = cell_rotation(keys, half);
  // The angles of a cell's lanes first .. end-1, [2, half, 16].
  const auto lanes_of = [&](int64_t begin, int64_t first, int64_t end) {
    static thread_local Scratch<float> scratch;
    float* const lanes = scratch.get(2 * half * kCell);
    for (int64_t lane = 0; lane < kCell; ++lane) {
      const bool inside = lane >= first && lane < end;
      const int64_t row = inside ? (begin + lane - entry) * table_stride : 0;
      for (int64_t c = 0; c < half; ++c) {
        lanes[c * kCell + lane] = cos[row + c];
        lanes[(half + c) * kCell + lane] = sin[row + c];
      }
    }
    return lanes;
  };
  const float* const alike = table_stride == 0 ? lanes_of(entry, 0, kCell) : nullptr;
  for_each(last_cell - first_cell + 1, [&](int64_t i) {
    const int64_t cell = first_cell + i, begin = cell * kCell;
    const int64_t first = std::max<int64_t>(0, entry - begin), end = std::min(kCell, entry + count - begin);
    const float* const lanes = alike != nullptr ? alike : lanes_of(begin, first, end);
    one(keys.dtype, half, cell_of(keys, cell), lanes, lanes + half * kCell, first, end);
  });
}

void rotate_whole_cells(const Cells& keys, int64_t first, int64_t cells, const float* cos, const float* sin,
                        int64_t half) {
  const auto one = cell_rotation(keys, half);
  for_each(cells, [&](int64_t i) {
    const int64_t angles = i * half * kCell;
    one(keys.dtype, half, cell_of(keys, first + i), cos + angles, sin + angles, 0, kCell);
  });
}

void from_polar(float* lengths, float* angles, int64_t n) {
  const RopeTable* fast = KVARENA_ACTIVE_TABLE(rope_table);
  (fast != nullptr ? fast->from_polar : from_polar_reference)(lengths, angles, n);
}

}  // namespace kvarena::kernels
