// Few rows: a block has 16 outputs and up to 32 rows, its warps take slices of the depth in turns, and what they find
// meets in shared memory. So n / 16 blocks of 8 warps read weights at once, each warp 8 tiles ahead. Many rows: a
// block has 128 outputs and 128 rows and walks the slices; x is split once for all its warps, in shared memory.
#include <algorithm>

#include "kernels/common/parallel.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/matmul/matmul_cuda.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / static_cast<int>(kWarp);
constexpr int kTile = static_cast<int>(DeviceMatrix::kTile), kTileNumbers = kTile * kTile, kLaneNumbers = 8;
constexpr int kRows = 8;                                            // rows of x in one product
constexpr int kSteps = static_cast<int>(kSliceColumns) / kTile;     // steps of a slice
constexpr int kBlockPanels = 4, kBlockRowTiles = 4;                 // panels and row tiles of a warp, many rows
constexpr int kColumnWarps = 2, kRowWarps = kWarps / kColumnWarps;  // warps of a block, many rows
constexpr int kBlockRows = kRowWarps * kBlockRowTiles * kRows;      // 128
constexpr int kBlockColumns = kColumnWarps * kBlockPanels * kTile;  // 128
constexpr int kStagedSteps = 4;                                     // steps of x in shared memory, twice
constexpr int kStagedWords = kBlockRows / kRows * kStagedSteps * static_cast<int>(kWarp);  // words of 16 bytes

struct Call {
  const float* x;
  const void* w;
  const float* bias;
  float* y;
  int64_t x_stride, y_stride;
  int64_t m, n, k;
  int64_t steps;  // steps of 16 columns
  bool add;
  bool whole;  // x can be read 16 bytes at a time
};

/// Offset of element (row, column) of the weights.
__host__ __device__ inline int64_t element(int64_t row, int64_t column, int64_t k) {
  const int64_t steps = (k + kTile - 1) / kTile, tile = row / kTile * steps + column / kTile;
  const int64_t lane = row % 8 * 4 + column % kTile / 4;
  return tile * kTileNumbers + lane * kLaneNumbers + column % 4 / 2 * 4 + row % kTile / 8 * 2 + column % 2;
}

/// Columns column .. column+3 of a row of x; 0 behind the last row and column.
__device__ __forceinline__ float4 four_of(const Call& call, int64_t row, int64_t column) {
  float4 four{0, 0, 0, 0};
  if (row >= call.m) return four;
  const float* at = call.x + row * call.x_stride + column;
  if (call.whole && column < call.k) {
    const uint4 bits = load_16_bytes(at);
    return {__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w)};
  }
  if (column < call.k) four.x = at[0];
  if (column + 1 < call.k) four.y = at[1];
  if (column + 2 < call.k) four.z = at[2];
  if (column + 3 < call.k) four.w = at[3];
  return four;
}

/// High and low parts of four columns: the right factors of two products.
template <class T>
__device__ __forceinline__ uint4 split_four(const float4& x) {
  const SplitPair first = split_pair<T>(x.x, x.y), second = split_pair<T>(x.z, x.w);
  return {first.high, second.high, first.low, second.low};
}

template <class T>
__device__ __forceinline__ void add_product(float (&d)[4], const uint4& weights, const uint4& split) {
  mma_16x8x16<T>(d, weights, split.x, split.y);
  mma_16x8x16<T>(d, weights, split.z, split.w);
}

/// One slice of 16 outputs and 8 * TILES rows, by a warp: d[i] as mma.cuh lays it out, outputs down and rows across.
template <class T, int TILES>
__device__ __forceinline__ void slice_of(const Call& call, int64_t panel, int64_t first_row, int64_t slice,
                                         float (&d)[TILES][4]) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
  const int64_t begin = slice * kSteps, end = begin + kSteps < call.steps ? begin + kSteps : call.steps;
  const auto* w =
      static_cast<const typename T::Stored*>(call.w) + panel * call.steps * kTileNumbers + lane * kLaneNumbers;
  if constexpr (sizeof(typename T::Stored) == 2) {
    constexpr int kAhead = 8;  // tiles that a warp has asked for before it uses the first
    for (int64_t first = begin; first < end; first += kAhead) {
      uint4 weights[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (first + j < end) weights[j] = stream_16_bytes(w + (first + j) * kTileNumbers);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (first + j >= end) break;
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
          const float4 x = four_of(call, first_row + i * kRows + g, (first + j) * kTile + 4 * t);
          add_product<T>(d[i], weights[j], split_four<T>(x));
        }
      }
    }
  } else {
    float sums[TILES][kRows][2] = {};
#pragma unroll 2
    for (int64_t s = begin; s < end; ++s) {
      float low[4], high[4];  // columns 0, 1 of outputs g and g + 8, then columns 2, 3
      load_vector<T>(w + s * kTileNumbers, low);
      load_vector<T>(w + s * kTileNumbers + 4, high);
#pragma unroll
      for (int i = 0; i < TILES; ++i) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float4 x = four_of(call, first_row + i * kRows + r, s * kTile + 4 * t);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& sum = sums[i][r][half];
            sum = fmaf(x.x, low[2 * half], sum);
            sum = fmaf(x.y, low[2 * half + 1], sum);
            sum = fmaf(x.z, high[2 * half], sum);
            sum = fmaf(x.w, high[2 * half + 1], sum);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float sum = sums[i][r][half];
          sum += __shfl_xor_sync(kAllLanes, sum, 1);
          sum += __shfl_xor_sync(kAllLanes, sum, 2);
          if (r / 2 == t) d[i][2 * half + r % 2] = sum;
        }
      }
    }
  }
}

__device__ __forceinline__ void write(const Call& call, int64_t row, int64_t column, float total) {
  if (row >= call.m || column >= call.n) return;
  if (call.bias != nullptr) total += call.bias[column];
  float& y = call.y[row * call.y_stride + column];
  y = call.add ? y + total : total;
}

/// Grid: panels of 16 outputs, blocks of 8 * TILES rows.
template <class T, int TILES>
__global__ void __launch_bounds__(kThreads) few_rows_kernel(const __grid_constant__ Call call) {
  constexpr int kNumbers = TILES * kRows * kTile;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % static_cast<int>(kWarp);
  const int64_t panel = blockIdx.x, first_row = int64_t{blockIdx.y} * TILES * kRows;
  const int64_t slices = (call.steps + kSteps - 1) / kSteps;
  auto* found = shared_memory<float>();  // [slices][rows][16 outputs]
  for (int64_t slice = thread / static_cast<int>(kWarp); slice < slices; slice += kWarps) {
    float d[TILES][4] = {};
    slice_of<T, TILES>(call, panel, first_row, slice, d);
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
      float* to = found + slice * kNumbers + (i * kRows + lane % 4 * 2) * kTile + lane / 4;
      to[0] = d[i][0];
      to[kTile] = d[i][1];
      to[8] = d[i][2];
      to[kTile + 8] = d[i][3];
    }
  }
  __syncthreads();
  for (int i = thread; i < kNumbers; i += kThreads) {
    float total = 0;
    for (int64_t slice = 0; slice < slices; ++slice) total += found[slice * kNumbers + i];
    write(call, first_row + i / kTile, panel * kTile + i % kTile, total);
  }
}

/// Splits kStagedSteps steps of the block's rows of x, from step `first` on: [rows / 8][step][lane].
template <class T>
__device__ inline void stage(const Call& call, int64_t first_row, int64_t first, uint4* staged) {
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kStagedWords; i += kThreads) {
    const int lane = i % static_cast<int>(kWarp), step = i / static_cast<int>(kWarp) % kStagedSteps;
    const int tile = i / static_cast<int>(kWarp) / kStagedSteps;
    staged[i] =
        split_four<T>(four_of(call, first_row + tile * kRows + lane / 4, (first + step) * kTile + 4 * (lane % 4)));
  }
}

/// Grid: blocks of 128 outputs, blocks of 128 rows.
template <class T>
__global__ void __launch_bounds__(kThreads) many_rows_kernel(const __grid_constant__ Call call) {
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t panels = (call.n + kTile - 1) / kTile;
  const int64_t first_panel = int64_t{blockIdx.x} * (kBlockColumns / kTile) + warp % kColumnWarps * kBlockPanels;
  const int row_tile = warp / kColumnWarps * kBlockRowTiles;  // within the block
  const int64_t first_row = int64_t{blockIdx.y} * kBlockRows;
  auto* staged = shared_memory<uint4>();  // [2][kStagedWords]
  const uint16_t* w[kBlockPanels];
#pragma unroll
  for (int p = 0; p < kBlockPanels; ++p) {  // panels behind the last one repeat it
    const int64_t panel = first_panel + p < panels ? first_panel + p : panels - 1;
    w[p] = static_cast<const uint16_t*>(call.w) + panel * call.steps * kTileNumbers + lane * kLaneNumbers;
  }
  float total[kBlockPanels][kBlockRowTiles][4] = {}, d[kBlockPanels][kBlockRowTiles][4] = {};
  stage<T>(call, first_row, 0, staged);
  for (int64_t first = 0, turn = 0; first < call.steps; first += kStagedSteps, ++turn) {
    __syncthreads();
    const int64_t next = first + kStagedSteps;
    if (next < call.steps) stage<T>(call, first_row, next, staged + (turn + 1) % 2 * kStagedWords);
    const uint4* mine = staged + turn % 2 * kStagedWords + row_tile * kStagedSteps * static_cast<int>(kWarp) + lane;
#pragma unroll
    for (int step = 0; step < kStagedSteps; ++step) {
      if (first + step >= call.steps) break;
      uint4 x[kBlockRowTiles];
#pragma unroll
      for (int i = 0; i < kBlockRowTiles; ++i) x[i] = mine[(i * kStagedSteps + step) * static_cast<int>(kWarp)];
#pragma unroll
      for (int p = 0; p < kBlockPanels; ++p) {
        const uint4 weights = load_16_bytes(w[p] + (first + step) * kTileNumbers);
#pragma unroll
        for (int i = 0; i < kBlockRowTiles; ++i) add_product<T>(d[p][i], weights, x[i]);
      }
    }
    if (next % kSteps != 0 && next < call.steps) continue;  // the slice goes on
#pragma unroll
    for (int p = 0; p < kBlockPanels; ++p) {
#pragma unroll
      for (int i = 0; i < kBlockRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          total[p][i][j] += d[p][i][j];
          d[p][i][j] = 0;
        }
      }
    }
  }
#pragma unroll
  for (int p = 0; p < kBlockPanels; ++p) {
#pragma unroll
    for (int i = 0; i < kBlockRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        write(call, first_row + (row_tile + i) * kRows + lane % 4 * 2 + j % 2,
              (first_panel + p) * kTile + lane / 4 + j / 2 * 8, total[p][i][j]);
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    store_kernel(typename T::Stored* to, int64_t k, int64_t row_begin, const float* rows, int64_t row_stride) {
  const int64_t row = blockIdx.x;
  for (int64_t c = threadIdx.x; c < (k + kTile - 1) / kTile * kTile; c += kThreads) {
    to[element(row_begin + row, c, k)] = T::narrow(c < k ? rows[row * row_stride + c] : 0.0f);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const typename T::Stored* from, int64_t k, const int32_t* index, float* x, int64_t x_stride) {
  const int64_t row = index[blockIdx.x];
  for (int64_t c = threadIdx.x; c < k; c += kThreads) x[blockIdx.x * x_stride + c] = T::widen(from[element(row, c, k)]);
}

int64_t found_bytes(const Call& call, int tiles) {
  return (call.steps + kSteps - 1) / kSteps * tiles * kRows * kTile * 4;
}

template <class T, int TILES>
void start_few(const Call& call, CudaStream stream) {
  constexpr int64_t kMostRows = int64_t{TILES} * kRows * 65535;  // limit of a grid
  Call part = call;
  for (int64_t row = 0; row < call.m; row += kMostRows) {
    part.m = std::min(call.m - row, kMostRows);
    part.x = call.x + row * call.x_stride;
    part.y = call.y + row * call.y_stride;
    launch(few_rows_kernel<T, TILES>, dim3(blocks_for(call.n, kTile), blocks_for(part.m, TILES * kRows)), kThreads,
           found_bytes(call, TILES), stream, part);
  }
}

template <class T>
void start(const Call& call, CudaStream stream) {
  if constexpr (sizeof(typename T::Stored) == 2) {
    if (call.m >= kTiledRows) {
      launch(many_rows_kernel<T>, dim3(blocks_for(call.n, kBlockColumns), blocks_for(call.m, kBlockRows)), kThreads,
             2 * kStagedWords * 16, stream, call);
      return;
    }
    constexpr int64_t kTwoBlocks = 112 * 1024;  // of shared memory, so that a multiprocessor has two of them
    if (call.m > 16 && found_bytes(call, 4) <= kTwoBlocks) return start_few<T, 4>(call, stream);
    if (call.m > 8 && found_bytes(call, 2) <= kTwoBlocks) return start_few<T, 2>(call, stream);
  }
  start_few<T, 1>(call, stream);
}

}  // namespace

DeviceMatrix::DeviceMatrix(int64_t n, int64_t k, DType dtype) : n_(n), k_(k), dtype_(dtype) {
  require(n >= 0 && k > 0, "DeviceMatrix: negative size or no columns");
  const int64_t tiles = (n + kTile - 1) / kTile * ((k + kTile - 1) / kTile);
  data_.reserve(tiles * kTileNumbers * size_of(dtype));
}

void DeviceMatrix::store_rows(int64_t row_begin, int64_t count, const float* rows, int64_t row_stride,
                              CudaStream stream) {
  require(row_begin >= 0 && count >= 0 && row_begin + count <= n_, "DeviceMatrix: rows outside the matrix");
  with_format(dtype_, [&](auto format) {
    using T = decltype(format);
    launch(store_kernel<T>, static_cast<unsigned>(count), kThreads, 0, stream,
           static_cast<typename T::Stored*>(data_.data()), k_, row_begin, rows, row_stride);
  });
}

void DeviceMatrix::gather_rows(const int32_t* index, int64_t count, float* x, int64_t x_stride,
                               CudaStream stream) const {
  with_format(dtype_, [&](auto format) {
    using T = decltype(format);
    launch(gather_kernel<T>, static_cast<unsigned>(count), kThreads, 0, stream,
           static_cast<const typename T::Stored*>(data_.data()), k_, index, x, x_stride);
  });
}

void matmul_cuda(const DeviceMatmul& args, CudaStream stream) {
  require(args.w != nullptr && args.m >= 0, "matmul: no weights or negative m");
  const DeviceMatrix& w = *args.w;
  require(args.m <= 1 || (args.x_stride >= w.k() && args.y_stride >= w.n()), "matmul: rows overlap");
  if (args.m == 0 || w.n() == 0) return;
  Call call{args.x, w.data(), args.bias, args.y, args.x_stride, args.y_stride, args.m, w.n(), w.k()};
  call.steps = (w.k() + kTile - 1) / kTile;
  call.add = args.add;
  call.whole = reinterpret_cast<uintptr_t>(args.x) % 16 == 0 && args.x_stride % 4 == 0 && w.k() % 4 == 0;
  with_format(w.dtype(), [&](auto format) { start<decltype(format)>(call, stream); });
}

}  // namespace kvarena::kernels
