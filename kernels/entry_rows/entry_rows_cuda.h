#pragma once
// Dequantisation steps of entries on a CUDA device, after codes were decoded: factors, low-rank corrections, exact
// outliers, rotations. Rows and everything pointed to lie on the device; everything is queued on `stream`. A row's bits
// depend on that row alone, and differ from the host's within rounding.

#include <cstdint>
#include <span>

#include "kernels/common/dtype.h"
#include "kernels/cuda/device.h"
#include "kernels/entry_rows/entry_rows.h"

namespace kvarena::kernels {

/// Keys or values of consecutive entries, all kv heads' channels side by side.
struct EntryRows {
  float* x = nullptr;  // [count, heads * head_dim]
  int64_t count = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;

  [[nodiscard]] constexpr int64_t width() const { return heads * head_dim; }
};

/// Applies one RowScale a channel, fused: scales [width].
void scale_channels_cuda(const EntryRows& rows, const RowScale* scales, CudaStream stream);
/// Applies one RowScale an entry and head, fused: scales [count, heads], or [count] where `shared` by all heads.
void scale_entries_cuda(const EntryRows& rows, const RowScale* scales, bool shared, CudaStream stream);

/// Applies one RowScale a channel of the tile that an entry lies in, fused: scales [tiles, width]; row i is entry
/// first + i.
void scale_tiles_cuda(const EntryRows& rows, int64_t first, int64_t tile, const RowScale* scales, CudaStream stream);

/// Overwrites channels of entry i with numbers[starts[i]] .. numbers[starts[i + 1] - 1]. starts [count + 1].
void place_numbers_cuda(const EntryRows& rows, const int32_t* starts, const PlacedNumber* numbers, CudaStream stream);

/// x[i, c] += sum over k of a[i, k] b[k, c], k ascending: entries that share low-rank factors, in one head.
struct RowProduct {
  float* x = nullptr;  // [count, n]
  int64_t x_stride = 0;
  int64_t count = 0, n = 0, rank = 0;
  DType dtype = DType::f16;  // dtype of a and b
  const void* a = nullptr;   // [count, rank]
  const void* b = nullptr;   // [rank, n]
};
/// Many products in one call; their x must not overlap.
void add_products_cuda(std::span<const RowProduct> products, CudaScratch& scratch, CudaStream stream);

/// Row i of head h += length[i, h] * sum over k of -+ matrix[k], k ascending, minus where the bit is set: a sketch of
/// signs.
struct SignedRows {
  const uint16_t* signs = nullptr;    // [count, heads, head_dim / 16], little end first
  const uint16_t* lengths = nullptr;  // [count, heads], f16
  const float* matrix = nullptr;      // [head_dim, head_dim]
  float factor = 1;                   // on lengths
};
void add_signed_rows_cuda(const EntryRows& rows, const SignedRows& what, CudaStream stream);

/// Channels c and c + head_dim / 2 of each head, a length and an angle, become the pair's coordinates.
void from_polar_cuda(const EntryRows& rows, CudaStream stream);

/// Rotary rotation: channels c and c + half of each head by the angle of the entry's position.
struct RowRotation {
  const int32_t* positions = nullptr;  // [count, heads]
  const float* cos = nullptr;          // [positions, half]
  const float* sin = nullptr;
  int64_t half = 0;
};
void rotate_rows_cuda(const EntryRows& rows, const RowRotation& turn, CudaStream stream);

}  // namespace kvarena::kernels
