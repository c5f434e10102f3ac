#pragma once
// One layer's cache for tests whose older keys and values are packed.

#include "tests/kernels/attention_support.h"
#include "tests/kernels/packed_support.h"

namespace kvarena::kernels::test {

/// A layer of which the first keys and values are packed, and the same with those decoded to f32 cells.
class PackedLayer {
 public:
  PackedLayer(const Shape& shape, const QuantFormat& format, int64_t entries, int64_t packed_keys,
              int64_t packed_values, uint64_t seed)
      : shape_(shape) {
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const bool is_key = kind == CellKind::keys;
        const int64_t packed = is_key ? packed_keys : packed_values, dim = is_key ? shape.head_dim : shape.value_dim;
        std::vector<float> rows = normal(entries * dim, seed + static_cast<uint64_t>(2 * h + is_key));
        packed_.emplace_back(kind, format, dim, packed);
        encode_rows(packed_.back().view, 0, packed, rows.data(), dim);
        rest_.push_back(cells(kind, shape.dtype, dim, rows.data() + packed * dim, entries - packed));
        decode_rows(packed_.back().view, 0, packed, rows.data(), dim);
        for (int64_t i = packed * dim; i < entries * dim; ++i) {
          float stored = 0;
          store_element(&stored, shape.dtype, 0, rows[static_cast<size_t>(i)]);
          rows[static_cast<size_t>(i)] = load_element(&stored, shape.dtype, 0);
        }
        decoded_.push_back(cells(kind, DType::f32, dim, rows.data(), entries));
      }
    }
    for (size_t h = 0; h < static_cast<size_t>(shape.kv_heads); ++h) {
      packed_runs_.push_back({rest_[2 * h].data(), rest_[2 * h + 1].data(), entries, nullptr, 0, &packed_[2 * h].view,
                              packed_keys, &packed_[2 * h + 1].view, packed_values});
      decoded_runs_.push_back({decoded_[2 * h].data(), decoded_[2 * h + 1].data(), entries});
    }
  }
  [[nodiscard]] std::vector<HeadRun> packed_runs() const { return packed_runs_; }
  [[nodiscard]] std::vector<HeadRun> decoded_runs() const { return decoded_runs_; }
  [[nodiscard]] Shape decoded_shape() const {
    Shape s = shape_;
    s.dtype = DType::f32;
    return s;
  }

 private:
  static std::vector<float> cells(CellKind kind, DType dtype, int64_t dim, const float* rows, int64_t n) {
    std::vector<float> memory(static_cast<size_t>(cell_bytes(n, dim, dtype) / 4 + 1), std::nanf(""));
    store_rows({kind, dtype, dim, memory.data()}, 0, n, rows, dim);
    return memory;
  }
  Shape shape_;
  std::vector<PackedMemory> packed_;
  std::vector<std::vector<float>> rest_, decoded_;
  std::vector<HeadRun> packed_runs_, decoded_runs_;
};

}  // namespace kvarena::kernels::test
