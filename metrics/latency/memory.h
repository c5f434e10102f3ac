#pragma once
// Cache bytes as the ratios papers print.

#include <cstdint>

namespace kvarena::metrics {

/// Bytes of a full KV cache: keys and values, layers * kv_heads * head_dim * kv_len elements each.
[[nodiscard]] int64_t full_cache_bytes(int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t kv_len,
                                       int64_t bytes_per_element);

struct CacheSize {
  double keep = 1;                ///< resident bytes over full bytes
  double compression_factor = 1;  ///< full over resident: "4x"; infinite for nothing resident
};

/// `resident_bytes` as measured on the device with scales, indices and metadata; `full_bytes` of the full cache in the
/// model's type. Throws InternalError when full_bytes is not positive or resident_bytes negative.
[[nodiscard]] CacheSize cache_size(int64_t resident_bytes, int64_t full_bytes);

}  // namespace kvarena::metrics
