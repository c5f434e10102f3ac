#include <algorithm>

#include "kernels/common/parallel.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/entry_rows/entry_rows_cuda.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float scaled(float x, const RowScale& by) { return fmaf(x, by.factor, by.offset); }

/// Grid: rows, as are those below.
__global__ void __launch_bounds__(kThreads) scale_channels_kernel(EntryRows rows, const RowScale* scales) {
  float* const x = rows.x + blockIdx.x * rows.width();
  for (int64_t c = threadIdx.x; c < rows.width(); c += kThreads) x[c] = scaled(x[c], scales[c]);
}

__global__ void __launch_bounds__(kThreads) scale_entries_kernel(EntryRows rows, const RowScale* scales, bool shared) {
  float* const x = rows.x + blockIdx.x * rows.width();
  const RowScale* const own = scales + blockIdx.x * (shared ? 1 : rows.heads);
  for (int64_t c = threadIdx.x; c < rows.width(); c += kThreads) {
    x[c] = scaled(x[c], own[shared ? 0 : c / rows.head_dim]);
  }
}

__global__ void __launch_bounds__(kThreads)
    scale_tiles_kernel(EntryRows rows, int64_t first, int64_t tile, const RowScale* scales) {
  float* const x = rows.x + blockIdx.x * rows.width();
  const RowScale* const own = scales + (first + blockIdx.x) / tile * rows.width();
  for (int64_t c = threadIdx.x; c < rows.width(); c += kThreads) x[c] = scaled(x[c], own[c]);
}

__global__ void __launch_bounds__(kThreads) from_polar_kernel(EntryRows rows) {
  const int64_t half = rows.head_dim / 2;
  for (int64_t i = threadIdx.x; i < rows.heads * half; i += kThreads) {
    float* const x = rows.x + blockIdx.x * rows.width() + i / half * rows.head_dim + i % half;
    const float length = x[0], angle = x[half];
    x[0] = length * cosf(angle);
    x[half] = length * sinf(angle);
  }
}

__global__ void __launch_bounds__(kThreads)
    place_numbers_kernel(EntryRows rows, const int32_t* starts, const PlacedNumber* numbers) {
  float* const x = rows.x + blockIdx.x * rows.width();
  const int32_t end = starts[blockIdx.x + 1];
  for (int32_t i = starts[blockIdx.x] + static_cast<int32_t>(threadIdx.x); i < end; i += kThreads) {
    x[numbers[i].channel] = numbers[i].value;
  }
}

__global__ void __launch_bounds__(kThreads) add_signed_rows_kernel(EntryRows rows, SignedRows what) {
  float* const x = rows.x + blockIdx.x * rows.width();
  for (int64_t c = threadIdx.x; c < rows.width(); c += kThreads) {
    const int64_t row = blockIdx.x * rows.heads + c / rows.head_dim;
    const uint16_t* const signs = what.signs + row * (rows.head_dim / 16);
    const float length = what.factor * F16::widen(what.lengths[row]);
    float sum = x[c];
    for (int64_t k = 0; k < rows.head_dim; ++k) {
      const bool minus = (signs[k / 16] >> (k % 16) & 1) != 0;
      sum = fmaf(minus ? -length : length, what.matrix[k * rows.head_dim + c % rows.head_dim], sum);
    }
    x[c] = sum;
  }
}

__global__ void __launch_bounds__(kThreads) rotate_rows_kernel(EntryRows rows, RowRotation turn) {
  for (int64_t i = threadIdx.x; i < rows.heads * turn.half; i += kThreads) {
    const int64_t head = i / turn.half, c = i % turn.half;
    const int64_t at = turn.positions[blockIdx.x * rows.heads + head] * turn.half + c;
    float* const x = rows.x + blockIdx.x * rows.width() + head * rows.head_dim + c;
    const float a = x[0], b = x[turn.half];
    x[0] = fmaf(0 - b, turn.sin[at], a * turn.cos[at]);
    x[turn.half] = fmaf(a, turn.sin[at], b * turn.cos[at]);
  }
}

template <class T>
__device__ void add_product(const RowProduct& p, int64_t i) {
  const auto* const a = static_cast<const typename T::Stored*>(p.a) + i / p.n * p.rank;
  const auto* const b = static_cast<const typename T::Stored*>(p.b) + i % p.n;
  float* const x = p.x + i / p.n * p.x_stride + i % p.n;
  float sum = *x;
  for (int64_t k = 0; k < p.rank; ++k) sum = fmaf(T::widen(a[k]), T::widen(b[k * p.n]), sum);
  *x = sum;
}

/// Grid: blocks over count * n, products.
__global__ void __launch_bounds__(kThreads) add_products_kernel(const RowProduct* products) {
  const RowProduct& p = products[blockIdx.y];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.count * p.n) return;
  switch (p.dtype) {
    case DType::f32: return add_product<F32>(p, i);
    case DType::f16: return add_product<F16>(p, i);
    case DType::bf16: return add_product<BF16>(p, i);
  }
}

template <class... Parameters, class... Arguments>
void launch_rows(void (*kernel)(EntryRows, Parameters...), const EntryRows& rows, CudaStream stream,
                 const Arguments&... arguments) {
  launch(kernel, static_cast<unsigned>(rows.count), kThreads, 0, stream, rows, arguments...);
}

}  // namespace

void scale_channels_cuda(const EntryRows& rows, const RowScale* scales, CudaStream stream) {
  launch_rows(scale_channels_kernel, rows, stream, scales);
}

void scale_entries_cuda(const EntryRows& rows, const RowScale* scales, bool shared, CudaStream stream) {
  launch_rows(scale_entries_kernel, rows, stream, scales, shared);
}

void scale_tiles_cuda(const EntryRows& rows, int64_t first, int64_t tile, const RowScale* scales, CudaStream stream) {
  launch_rows(scale_tiles_kernel, rows, stream, first, tile, scales);
}

void from_polar_cuda(const EntryRows& rows, CudaStream stream) { launch_rows(from_polar_kernel, rows, stream); }

void place_numbers_cuda(const EntryRows& rows, const int32_t* starts, const PlacedNumber* numbers, CudaStream stream) {
  launch_rows(place_numbers_kernel, rows, stream, starts, numbers);
}

void add_products_cuda(std::span<const RowProduct> products, CudaScratch& scratch, CudaStream stream) {
  int64_t numbers = 0;
  for (const RowProduct& p : products) numbers = std::max(numbers, p.count * p.n);
  launch_items(add_products_kernel, products, blocks_for(numbers, kThreads), kThreads, 0, scratch, stream);
}

void add_signed_rows_cuda(const EntryRows& rows, const SignedRows& what, CudaStream stream) {
  require(rows.head_dim % 16 == 0, "add_signed_rows: head_dim must be a multiple of 16");
  launch_rows(add_signed_rows_kernel, rows, stream, what);
}

void rotate_rows_cuda(const EntryRows& rows, const RowRotation& turn, CudaStream stream) {
  require(2 * turn.half <= rows.head_dim, "turn_rows: more channels turn than a head has");
  launch_rows(rotate_rows_kernel, rows, stream, turn);
}

}  // namespace kvarena::kernels
