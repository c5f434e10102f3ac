#include <cstring>

#include "kernels/common/parallel.h"
#include "kernels/matmul/matmul.h"

namespace kvarena::kernels {

PackedMatrix::PackedMatrix(int64_t n, int64_t k, DType dtype, Arithmetic arithmetic)
    : n_(n), k_(k), dtype_(dtype), arithmetic_(arithmetic) {
  require(n >= 0 && k >= 0, "PackedMatrix: negative size");
  require(arithmetic == Arithmetic::exact || dtype == DType::bf16, "PackedMatrix: bf16 arithmetic needs bf16 weights");
  const size_t size = static_cast<size_t>(bytes());
  if (size == 0) return;
  data_.reset(std::aligned_alloc(64, (size + 63) / 64 * 64));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, size);
}

void PackedMatrix::pack_rows(int64_t row_begin, int64_t count, const float* rows, int64_t row_stride) {
  require(row_begin >= 0 && count >= 0 && row_begin + count <= n_, "PackedMatrix::pack_rows: rows outside the matrix");
  // Panel by panel and a few columns at a time, so that writes go out in whole cache lines.
  constexpr int64_t kColumns = 64;
  const int64_t first_panel = row_begin / kPanel, end = row_begin + count;
  const int64_t last_panel = (end + kPanel - 1) / kPanel;
  parallel_for(count == 0 ? 0 : last_panel - first_panel, [&](int64_t p) {
    const int64_t panel = first_panel + p;
    const int64_t begin = std::max(row_begin, panel * kPanel), stop = std::min(end, (panel + 1) * kPanel);
    for (int64_t c0 = 0; c0 < k_; c0 += kColumns) {
      for (int64_t row = begin; row < stop; ++row) {
        const float* source = rows + (row - row_begin) * row_stride;
        for (int64_t c = c0; c < std::min(k_, c0 + kColumns); ++c) {
          store_element(data_.get(), dtype_, element(row, c), source[c]);
        }
      }
    }
  });
}

void PackedMatrix::unpack_row(int64_t row, float* out) const {
  require(row >= 0 && row < n_, "PackedMatrix::unpack_row: row outside the matrix");
  for (int64_t c = 0; c < k_; ++c) out[c] = load_element(data_.get(), dtype_, element(row, c));
}

PackedMatrix pack_weights(const float* w, int64_t n, int64_t k, DType dtype, Arithmetic arithmetic) {
  PackedMatrix packed(n, k, dtype, arithmetic);
  packed.pack_rows(0, n, w, k);
  return packed;
}

}  // namespace kvarena::kernels
