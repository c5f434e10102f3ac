// A block takes a chunk of one kv head and up to 8 or 16 query rows (attention_chunk.cuh). Few rows: every chunk is a
// block of its own and a second kernel merges; many rows: a block walks the chunks and merges as it goes. Both merge
// alike, so the bits agree.
#include <algorithm>
#include <span>
#include <vector>

#include "kernels/attention/attention_chunk.cuh"
#include "kernels/attention/attention_cuda.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

/// Up to this many query rows of a head, chunks are spread over blocks: more fill the device by themselves, and their
/// partial results would fill its memory.
constexpr int64_t kSplitRows = 128;

/// Merge rule for one number of the output; all other inputs are the row's.
struct Merge {
  float max, mine, theirs;  // the new maximum, and the factors of both sides
};
__device__ __forceinline__ Merge merge_of(float max, float from_max, float from_sum) {
  if (from_sum == 0) return {max, 1, 0};
  const float m = fmaxf(max, from_max);
  return {m, expf(max - m), expf(from_max - m)};
}
/// A side that saw nothing may hold anything.
__device__ __forceinline__ float merged(const Merge& merge, float mine, float theirs, float from_sum) {
  return from_sum == 0 ? mine : fmaf(mine, merge.mine, theirs * merge.theirs);
}

template <int ROWS>
__device__ void store_partial(const AttendChunk<ROWS>& chunk, const AttendRows& rows, int64_t q_heads, float* partial) {
  const int dim = chunk.call.value_dim;
  for (int r = 0; r < rows.count; ++r) {
    float* to = partial + (rows.token(r) * q_heads + rows.q_head(r)) * (dim + 2);
    for (int c = static_cast<int>(threadIdx.x); c < dim; c += kAttendThreads) to[c] = chunk.out[r * dim + c];
    if (threadIdx.x == 0) {
      to[dim] = chunk.max[r];
      to[dim + 1] = chunk.sum[r];
    }
  }
}

template <int ROWS>
__device__ void merge_chunk(const AttendChunk<ROWS>& chunk, const AttendRows& rows, int64_t q_heads,
                            const AttentionState& state) {
  const int dim = chunk.call.value_dim;
  for (int r = 0; r < rows.count; ++r) {
    const int64_t row = rows.token(r) * q_heads + rows.q_head(r);
    const float from_sum = chunk.sum[r];
    const Merge merge = merge_of(state.max[row], chunk.max[r], from_sum);
    float* out = state.out + row * dim;
    for (int c = static_cast<int>(threadIdx.x); c < dim; c += kAttendThreads) {
      out[c] = merged(merge, out[c], chunk.out[r * dim + c], from_sum);
    }
    __syncthreads();  // all have read the maximum
    if (threadIdx.x == 0) {
      state.sum[row] = merged(merge, state.sum[row], from_sum, from_sum);
      state.max[row] = merge.max;
    }
  }
  __syncthreads();
}

/// Grid: kv_heads * blocks of rows, chunks (1 when blocks walk them), problems.
template <class T, bool PACKED, int ROWS>
__global__ void __launch_bounds__(kAttendThreads) attend_kernel(const __grid_constant__ AttendCall call) {
  const AttendWork& work = call.problems[blockIdx.z];
  const AttendProblem& problem = work.problem;
  AttendRows rows{0, 0, call.q_heads / call.kv_heads, blockIdx.x % call.kv_heads};
  rows.first = blockIdx.x / call.kv_heads * ROWS;
  const int64_t all_rows = problem.q_len * rows.group;
  if (rows.first >= all_rows) return;
  rows.count = all_rows - rows.first < ROWS ? all_rows - rows.first : ROWS;
  const DeviceRun& run = call.runs[work.first_run + rows.head];
  const int64_t entries = entries_of(work, run), listed = run.run.index != nullptr ? run.run.index_count : entries;
  const int64_t chunks = (listed + kChunk - 1) / kChunk;
  const bool split = call.partials != nullptr;
  if (split && blockIdx.y >= chunks_of(work)) return;
  const int64_t begin = split ? blockIdx.y : 0, end = split ? begin + 1 : chunks;

  AttendChunk<ROWS> chunk{call, run, entries};
  chunk.fragments = shared_memory<uint4>();
  chunk.q = shared_memory<float>() + fragment_words<T, ROWS>(call);
  chunk.out = chunk.q + ROWS * q_stride(call);
  chunk.weights = chunk.out + ROWS * call.value_dim;
  chunk.meet = chunk.weights + ROWS * kWeightStride;
  chunk.max = chunk.meet + kMeetFloats;
  chunk.sum = chunk.max + ROWS;
  chunk.low = reinterpret_cast<int*>(chunk.sum + ROWS);
  chunk.high = chunk.low + ROWS;
  chunk.touches = chunk.high + ROWS;
  for (int i = static_cast<int>(threadIdx.x); i < ROWS * call.head_dim; i += kAttendThreads) {
    const int row = i / call.head_dim, c = i % call.head_dim;
    chunk.q[row * q_stride(call) + c] =
        row < rows.count
            ? problem.q[rows.token(row) * problem.q_token_stride + rows.q_head(row) * problem.q_head_stride + c]
            : 0.0f;
  }
  __syncthreads();
  if constexpr (sizeof(typename T::Stored) == 2) make_fragments<T>(chunk);
  for (int64_t c = begin; c < end; ++c) {
    const int64_t left = listed - c * kChunk;
    chunk.first = c * kChunk;
    chunk.count = static_cast<int>(left < 0 ? 0 : left > kChunk ? kChunk : left);
    const bool seen = attend_chunk<T, PACKED>(chunk, problem, rows);
    if (split) {
      store_partial(chunk, rows, call.q_heads,
                    call.partials + work.partials + c * problem.q_len * call.q_heads * (call.value_dim + 2));
    } else if (seen) {
      merge_chunk(chunk, rows, call.q_heads, problem.state);
    }
  }
}

constexpr int kFoldThreads = 128;

/// Merges the chunks of one row into its state. Grid: rows, 1, problems.
__global__ void __launch_bounds__(kFoldThreads) fold_kernel(const __grid_constant__ AttendCall call) {
  const AttendWork& work = call.problems[blockIdx.z];
  const int64_t row = blockIdx.x, rows = work.problem.q_len * call.q_heads;
  if (row >= rows) return;
  const AttentionState& state = work.problem.state;
  const int dim = call.value_dim, thread = static_cast<int>(threadIdx.x);
  const float* partials = call.partials + work.partials + row * (dim + 2);
  const int64_t stride = rows * (dim + 2);
  const int64_t chunks = chunks_of(work);
  for (int c = thread; c <= dim; c += kFoldThreads) {  // the sum is merged like a channel
    float max = state.max[row];
    float mine = c < dim ? state.out[row * dim + c] : state.sum[row];
#pragma unroll 8
    for (int64_t k = 0; k < chunks; ++k) {
      const float* from = partials + k * stride;
      const float from_sum = from[dim + 1];
      const Merge merge = merge_of(max, from[dim], from_sum);
      mine = merged(merge, mine, c < dim ? from[c] : from_sum, from_sum);
      max = merge.max;
    }
    if (c < dim) {
      state.out[row * dim + c] = mine;
    } else {
      state.sum[row] = mine;
    }
  }
  __syncthreads();  // all have read the maximum
  if (thread != 0) return;
  float max = state.max[row];
  for (int64_t k = 0; k < chunks; ++k)
    max = merge_of(max, partials[k * stride + dim], partials[k * stride + dim + 1]).max;
  state.max[row] = max;
}

__global__ void merge_kernel(AttentionState into, AttentionState from, int dim) {
  const int64_t row = blockIdx.x;
  const float from_sum = from.sum[row];
  const Merge merge = merge_of(into.max[row], from.max[row], from_sum);
  for (int c = static_cast<int>(threadIdx.x); c < dim; c += kFoldThreads) {
    into.out[row * dim + c] = merged(merge, into.out[row * dim + c], from.out[row * dim + c], from_sum);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  into.sum[row] = merged(merge, into.sum[row], from_sum, from_sum);
  into.max[row] = merge.max;
}

__global__ void init_kernel(AttentionState state, int dim) {
  const int64_t row = blockIdx.x;
  for (int c = static_cast<int>(threadIdx.x); c < dim; c += kFoldThreads) state.out[row * dim + c] = 0;
  if (threadIdx.x != 0) return;
  state.max[row] = -INFINITY;
  state.sum[row] = 0;
}

__global__ void finish_kernel(AttentionState state, int dim, float* lse) {
  const int64_t row = blockIdx.x;
  const float sum = state.sum[row];
  if (lse != nullptr && threadIdx.x == 0) lse[row] = sum == 0 ? -INFINITY : state.max[row] + logf(sum);
  if (sum == 0) return;  // out is still 0
  const float factor = 1 / sum;
  for (int c = static_cast<int>(threadIdx.x); c < dim; c += kFoldThreads) state.out[row * dim + c] *= factor;
}

/// Problems of one dtype that are cut alike.
struct Batch {
  std::vector<AttendWork> problems;
  std::vector<DeviceRun> runs;
  int64_t partial_floats = 0, chunks = 0, rows = 0;  // the last two of the largest
};

bool aligned(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % 16 == 0; }

void require_valid(const AttendArgs& args, int64_t value_dim) {
  require(args.kv_heads > 0 && args.q_heads % args.kv_heads == 0, "attend: q_heads must be a multiple of kv_heads");
  require(args.head_dim > 0 && args.head_dim % kCell == 0 && value_dim % kCell == 0,
          "attend: head_dim and value_dim must be multiples of 16");
  require(args.head_dim <= 4 * kAttendThreads && value_dim <= 4 * kAttendThreads,
          "attend: head_dim and value_dim are at most 1024");
  for (const AttendProblem& problem : args.problems) {
    for (int64_t h = 0; h < args.kv_heads; ++h) {
      const HeadRun& run = problem.runs[h];
      require(aligned(run.keys) && aligned(run.values) &&
                  (run.packed_keys == nullptr || aligned(run.packed_keys->codes)) &&
                  (run.packed_values == nullptr || aligned(run.packed_values->codes)),
              "attend: keys, values and codes on the device must be aligned to 16 bytes");
    }
  }
}

void add_problem(const AttendArgs& args, const AttendProblem& problem, const RunGrowth& growth, int64_t value_dim,
                 Batch& batch) {
  const std::span dropped(growth.dropped, growth.dropped == nullptr ? 0 : static_cast<size_t>(args.kv_heads));
  AttendWork work{problem,
                  static_cast<int64_t>(batch.runs.size()),
                  batch.partial_floats,
                  0,
                  growth.before,
                  dropped.empty() ? 0 : *std::min_element(dropped.begin(), dropped.end())};
  for (int64_t h = 0; h < args.kv_heads; ++h) {
    batch.runs.push_back(describe(problem.runs[h]));
    if (!dropped.empty()) batch.runs.back().dropped = dropped[static_cast<size_t>(h)];
    work.chunks = std::max(work.chunks, (listed_entries(problem.runs[h]) + kChunk - 1) / kChunk);
  }
  batch.chunks = std::max(batch.chunks, work.chunks);
  batch.rows = std::max(batch.rows, problem.q_len * args.q_heads);
  batch.partial_floats += work.chunks * problem.q_len * args.q_heads * (value_dim + 2);
  batch.problems.push_back(work);
}

template <class T, bool PACKED, int ROWS>
void start(const AttendCall& call, const Batch& batch, bool split, CudaStream stream) {
  const int64_t row_blocks = (batch.rows / call.kv_heads + ROWS - 1) / ROWS;
  const dim3 grid(static_cast<unsigned>(row_blocks * call.kv_heads), split ? static_cast<unsigned>(batch.chunks) : 1,
                  static_cast<unsigned>(batch.problems.size()));
  launch(attend_kernel<T, PACKED, ROWS>, grid, kAttendThreads, attend_shared_bytes<T, ROWS>(call), stream, call);
  if (!split) return;
  launch(fold_kernel, dim3(static_cast<unsigned>(batch.rows), 1, grid.z), kFoldThreads, 0, stream, call);
}

template <class T, bool PACKED>
void run_batch(const AttendArgs& args, int value_dim, const Batch& batch, bool split, CudaScratch& scratch,
               CudaStream stream) {
  if (batch.problems.empty() || batch.chunks == 0) return;
  AttendCall call{};
  call.problems = static_cast<const AttendWork*>(
      scratch.upload(batch.problems.data(), static_cast<int64_t>(batch.problems.size() * sizeof(AttendWork)), stream));
  call.runs = static_cast<const DeviceRun*>(
      scratch.upload(batch.runs.data(), static_cast<int64_t>(batch.runs.size() * sizeof(DeviceRun)), stream));
  call.partials = split ? static_cast<float*>(scratch.device(batch.partial_floats * 4, stream)) : nullptr;
  call.q_heads = args.q_heads;
  call.kv_heads = args.kv_heads;
  call.head_dim = static_cast<int>(args.head_dim);
  call.value_dim = value_dim;
  call.scale = args.scale;
  const int64_t group_rows = batch.rows / args.kv_heads;
  if constexpr (sizeof(typename T::Stored) == 2) {  // rows come in tiles of 8
    constexpr int64_t kTwoBlocks = 112 * 1024;      // of shared memory, so that a multiprocessor has two of them
    const bool fits = attend_shared_bytes<T, 16>(call) <= kTwoBlocks;
    if (group_rows <= 8 || !fits) return start<T, PACKED, 8>(call, batch, split, stream);
    start<T, PACKED, 16>(call, batch, split, stream);
  } else {
    if (group_rows == 1) return start<T, PACKED, 1>(call, batch, split, stream);
    if (group_rows <= 4) return start<T, PACKED, 4>(call, batch, split, stream);
    start<T, PACKED, 8>(call, batch, split, stream);
  }
}

}  // namespace

void attend_cuda(const AttendArgs& args, CudaScratch& scratch, CudaStream stream) {
  attend_cuda(args, {}, scratch, stream);
}

void attend_cuda(const AttendArgs& args, std::span<const RunGrowth> growth, CudaScratch& scratch, CudaStream stream) {
  require(growth.empty() || growth.size() == args.problems.size(), "attend: a growth for each problem, or none");
  const int64_t value_dim = args.value_dim == 0 ? args.head_dim : args.value_dim;
  require_valid(args, value_dim);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Batch batches[2][2];  // [split][packed]
    for (size_t i = 0; i < args.problems.size(); ++i) {
      const AttendProblem& problem = args.problems[i];
      if (problem.dtype != dtype || problem.q_len == 0) continue;
      const std::span runs(problem.runs, static_cast<size_t>(args.kv_heads));
      const bool packed = std::any_of(runs.begin(), runs.end(), [](const HeadRun& run) {
        return run.packed_key_count > 0 || run.packed_value_count > 0;
      });
      const bool split = problem.q_len * (args.q_heads / args.kv_heads) <= kSplitRows;
      add_problem(args, problem, growth.empty() ? RunGrowth{} : growth[i], value_dim,
                  batches[split ? 1 : 0][packed ? 1 : 0]);
    }
    with_format(dtype, [&](auto format) {
      using T = decltype(format);
      for (const bool split : {false, true}) {
        const auto& [dense, packed] = batches[split ? 1 : 0];
        run_batch<T, false>(args, static_cast<int>(value_dim), dense, split, scratch, stream);
        run_batch<T, true>(args, static_cast<int>(value_dim), packed, split, scratch, stream);
      }
    });
  }
}

void init_attention_cuda(const AttentionState& state, int64_t q_len, int64_t q_heads, int64_t value_dim,
                         CudaStream stream) {
  launch(init_kernel, dim3(static_cast<unsigned>(q_len * q_heads)), kFoldThreads, 0, stream, state,
         static_cast<int>(value_dim));
}

void merge_attention_cuda(const AttentionState& into, const AttentionState& from, int64_t rows, int64_t value_dim,
                          CudaStream stream) {
  launch(merge_kernel, dim3(static_cast<unsigned>(rows)), kFoldThreads, 0, stream, into, from,
         static_cast<int>(value_dim));
}

void finish_attention_cuda(const AttentionState& state, int64_t q_len, int64_t q_heads, int64_t value_dim, float* lse,
                           CudaStream stream) {
  launch(finish_kernel, dim3(static_cast<unsigned>(q_len * q_heads)), kFoldThreads, 0, stream, state,
         static_cast<int>(value_dim), lse);
}

}  // namespace kvarena::kernels
