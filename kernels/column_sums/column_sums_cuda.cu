#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/entries.cuh"
#include "kernels/column_sums/column_sums_cuda.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / static_cast<int>(kWarp), kLanes = static_cast<int>(kCell);
constexpr int kTokens = 8, kPositions = kWarps * kLanes;  // tokens and list positions of a block

struct SumsWork {
  ColumnSumsProblem problem;  // `runs` is the host's and not followed
  int64_t first_run;          // index in SumsCall::runs of its first kv head's run
};

struct SumsCall {
  const SumsWork* problems;
  const DeviceRun* runs;
  int64_t q_heads, kv_heads;
  int head_dim;
  float scale;
};

/// Some tokens of one query head in shared memory.
struct TokenTile {
  float* q;         // [kTokens][head_dim]
  float* lse;       // [kTokens], -inf for tokens that are not there
  int *low, *high;  // [kTokens]: positions they see, relative to the block's first
};

/// Fills the tile by all threads; false where no token of it sees a position of the block.
__device__ bool load_tokens(const SumsCall& call, const ColumnSumsProblem& problem, const HeadRun& run, int64_t head,
                            int64_t token, int64_t first, const TokenTile& tile) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kTokens) {
    DeviceVisible visible{0, 0};
    const int64_t t = token + thread;
    tile.lse[thread] = -INFINITY;
    if (t < problem.q_len) {
      tile.lse[thread] = problem.lse[t * call.q_heads + head];
      visible = visible_positions(run, problem.q_len, problem.causal, nullptr, problem.window, t);
    }
    const int64_t begin = visible.begin - first, end = visible.end - first;
    tile.low[thread] = static_cast<int>(begin < 0 ? 0 : begin > kPositions ? kPositions : begin);
    tile.high[thread] = static_cast<int>(end < 0 ? 0 : end > kPositions ? kPositions : end);
  }
  for (int i = thread; i < kTokens * call.head_dim; i += kThreads) {
    const int64_t t = token + i / call.head_dim;
    tile.q[i] = t < problem.q_len
                    ? problem.q[t * problem.q_token_stride + head * problem.q_head_stride + i % call.head_dim]
                    : 0.0f;
  }
  __syncthreads();
  bool any = false;
#pragma unroll
  for (int t = 0; t < kTokens; ++t) any = any || tile.low[t] < tile.high[t];
  return any;
}

/// The 16 list positions of a warp: which cells they lie in, one after another.
struct WarpPositions {
  int begin, count;  // relative to the block's first
  int64_t cell;      // cell of this lane's position; -1 where there is none
  int lane_in_cell;
};

/// Adds to sums [kPositions] what the tile's tokens give to one warp's positions.
template <class T>
__device__ void add_tokens(const SumsCall& call, const DeviceRun& run, const TokenTile& tile, const WarpPositions& mine,
                           float* sums) {
  const int64_t packed_cells = cells_for(run.run.packed_key_count);
  for (int done = 0; done < mine.count;) {
    const int64_t cell = __shfl_sync(kAllLanes, mine.cell, done);
    const uint32_t here = __ballot_sync(kAllLanes, mine.cell == cell);
    const uint32_t listed = __reduce_or_sync(kAllLanes, mine.cell == cell ? 1u << mine.lane_in_cell : 0u);
    float scores[kTokens];
    int entry = 0;
    if (cell < packed_cells) {
      entry = cell_products<kTokens>(PackedKeys(run.packed_keys, cell), tile.q, call.head_dim, call.head_dim, scores);
    } else {
      entry = cell_products<kTokens>(CellKeys<T>(run.run.keys, cell - packed_cells, call.head_dim), tile.q,
                                     call.head_dim, call.head_dim, scores);
    }
    const unsigned twin = cell < packed_cells ? kTwinLane<PackedKeys> : kTwinLane<CellKeys<T>>;
    const bool first = (threadIdx.x & twin) == 0;
    if (first && (listed >> entry & 1u) != 0) {
      const int position = mine.begin + done + __popc(listed & ((1u << entry) - 1));
      float sum = sums[position];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        if (position < tile.low[t] || position >= tile.high[t] || tile.lse[t] == -INFINITY) continue;
        sum += expf(scores[t] * call.scale - tile.lse[t]);
      }
      sums[position] = sum;
    }
    done += __popc(here);
  }
}

/// Grid: blocks of positions, query heads, problems.
template <class T>
__global__ void __launch_bounds__(kThreads) column_sums_kernel(const __grid_constant__ SumsCall call) {
  const SumsWork& work = call.problems[blockIdx.z];
  const ColumnSumsProblem& problem = work.problem;
  const int64_t head = blockIdx.y, first = int64_t{blockIdx.x} * kPositions;
  const DeviceRun& run = call.runs[work.first_run + head / (call.q_heads / call.kv_heads)];
  const int64_t left = listed_entries(run.run) - first;
  if (left <= 0) return;
  const int count = static_cast<int>(left < kPositions ? left : kPositions);

  auto* shared = shared_memory<float>();
  float* sums = shared + kTokens * call.head_dim;
  float* lse = sums + kPositions;
  auto* low = reinterpret_cast<int*>(lse + kTokens);
  const TokenTile tile{shared, lse, low, low + kTokens};
  float* row = problem.sums + head * problem.sums_stride + first;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % static_cast<int>(kWarp);
  if (thread < count) sums[thread] = row[thread];

  WarpPositions mine{thread / static_cast<int>(kWarp) * kLanes, 0, -1, 0};
  mine.count = min(kLanes, max(0, count - mine.begin));
  if (lane < mine.count) {
    const int64_t entry = entry_at(run.run, first + mine.begin + lane);
    mine.cell = entry / kCell;
    mine.lane_in_cell = static_cast<int>(entry % kCell);
  }
  __syncthreads();
  for (int64_t token = 0; token < problem.q_len; token += kTokens) {
    if (load_tokens(call, problem, run.run, head, token, first, tile)) add_tokens<T>(call, run, tile, mine, sums);
    __syncthreads();
  }
  if (thread < count) row[thread] = sums[thread];
}

}  // namespace

void column_sums_cuda(const ColumnSumsArgs& args, CudaScratch& scratch, CudaStream stream) {
  require(args.kv_heads > 0 && args.q_heads % args.kv_heads == 0,
          "column_sums: q_heads must be a multiple of kv_heads");
  require(args.head_dim > 0 && args.head_dim % kCell == 0, "column_sums: head_dim must be a multiple of 16");
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<SumsWork> problems;
    std::vector<DeviceRun> runs;
    int64_t listed = 0;
    for (const ColumnSumsProblem& problem : args.problems) {
      if (problem.dtype != dtype || problem.q_len == 0) continue;
      problems.push_back({problem, static_cast<int64_t>(runs.size())});
      for (int64_t h = 0; h < args.kv_heads; ++h) {
        runs.push_back(describe(problem.runs[h]));
        listed = std::max(listed, listed_entries(problem.runs[h]));
      }
    }
    if (problems.empty()) continue;
    const auto bytes = [](const auto& all) { return static_cast<int64_t>(all.size() * sizeof(all[0])); };
    const SumsCall call{static_cast<const SumsWork*>(scratch.upload(problems.data(), bytes(problems), stream)),
                        static_cast<const DeviceRun*>(scratch.upload(runs.data(), bytes(runs), stream)),
                        args.q_heads,
                        args.kv_heads,
                        static_cast<int>(args.head_dim),
                        args.scale};
    const dim3 grid(blocks_for(listed, kPositions), static_cast<unsigned>(args.q_heads),
                    static_cast<unsigned>(problems.size()));
    const int64_t shared = 4 * (kTokens * args.head_dim + kPositions + 3 * kTokens);
    with_format(dtype, [&](auto format) {
      launch(column_sums_kernel<decltype(format)>, grid, kThreads, shared, stream, call);
    });
  }
}

}  // namespace kvarena::kernels
