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
  require(keys.kind == CellKind::keys && 2 * half <= keys.head_dim, "rotate_cells: keys only, rotary at most head_dim");
  if (count <= 0) return;
  const RopeTable* fast = KVARENA_ACTIVE_TABLE(rope_table);
  const auto one = fast != nullptr ? fast->rotate_cell : rotate_cell_reference;
  const int64_t first_cell = entry / kCell, last_cell = (entry + count - 1) / kCell;
  for_each(last_cell - first_cell + 1, [&](int64_t i) {
    static thread_local Scratch<float> scratch;
    float* lane_cos = scratch.get(2 * half * kCell);
    float* lane_sin = lane_cos + half * kCell;
    const int64_t cell = first_cell + i, begin = cell * kCell;
    const int64_t first = std::max<int64_t>(0, entry - begin), end = std::min(kCell, entry + count - begin);
    for (int64_t lane = 0; lane < kCell; ++lane) {
      const bool inside = lane >= first && lane < end;
      const int64_t row = inside ? (begin + lane - entry) * table_stride : 0;
      for (int64_t c = 0; c < half; ++c) {
        lane_cos[c * kCell + lane] = cos[row + c];
        lane_sin[c * kCell + lane] = sin[row + c];
      }
    }
    char* data = static_cast<char*>(keys.data) + cell * cell_bytes(kCell, keys.head_dim, keys.dtype);
    one(keys.dtype, half, data, lane_cos, lane_sin, first, end);
  });
}

}  // namespace kvarena::kernels
