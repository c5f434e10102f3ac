#pragma once
// Queries, keys and values of a pass's rows.

#include <cstdint>

namespace kvarena {

/// Queries, keys and values, rotated; valid until the next block.
struct QkvRows {
  const float* q = nullptr;  // [R, q_heads, head_dim of the cache]; null where nobody asked for it
  int64_t q_stride = 0;
  const float* keys = nullptr;    // [R, kv_heads, head_dim of the cache]
  const float* values = nullptr;  // as keys
  int64_t kv_stride = 0;

  /// The rows from `first` on.
  [[nodiscard]] QkvRows from(int64_t first) const {
    return {.q = q == nullptr ? nullptr : q + first * q_stride,
            .q_stride = q_stride,
            .keys = keys + first * kv_stride,
            .values = values + first * kv_stride,
            .kv_stride = kv_stride};
  }
};

}  // namespace kvarena
