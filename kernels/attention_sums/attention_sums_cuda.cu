#include <vector>

#include "kernels/attention_sums/attention_sums_cuda.h"
#include "kernels/attention_sums/gumbel_noise.h"
#include "kernels/common/parallel.h"
#include "kernels/cuda/numbers.cuh"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / static_cast<int>(kWarp);

/// The list position of a thread, one of grid (positions, kv_heads); behind all where there is none.
__device__ int64_t own_position() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

/// Probability that a token gave to list position p in one query head.
__device__ float probability(const DeviceProbabilities& rows, int64_t token, int64_t q_head, int64_t p) {
  return rows.data[(token * rows.q_heads + q_head) * rows.entries + p];
}

/// The first token that sees list position p.
__device__ int64_t first_that_sees(const DeviceProbabilities& rows, int64_t p) {
  return p > rows.position ? p - rows.position : 0;
}

/// The mean over a kv head's group.
__device__ float group_mean(const DeviceProbabilities& rows, int64_t token, int64_t p) {
  const int64_t group = rows.q_heads / rows.kv_heads, head = int64_t{blockIdx.y} * group;
  float sum = 0;
  for (int64_t g = 0; g < group; ++g) sum += probability(rows, token, head + g, p);
  return sum / static_cast<float>(group);
}

__global__ void __launch_bounds__(kThreads) moments_kernel(DeviceProbabilities rows, float* sums, int64_t stride) {
  const int64_t p = own_position();
  if (p >= rows.entries) return;
  float* const at = sums + int64_t{blockIdx.y} * 2 * stride + p;
  float sum = at[0], square = at[stride];
  for (int64_t token = first_that_sees(rows, p); token < rows.tokens; ++token) {
    const float mean = group_mean(rows, token, p);
    sum += mean;
    square += mean * mean;
  }
  at[0] = sum;
  at[stride] = square;
}

__global__ void __launch_bounds__(kThreads)
    ignored_kernel(DeviceProbabilities rows, IgnoredQueries queries, float* words, int64_t stride) {
  const int64_t p = own_position(), first = queries.first - rows.position;
  if (p >= rows.entries) return;
  float* const at = words + int64_t{blockIdx.y} * queries.words() * stride + p;
  const int64_t seen_from = first_that_sees(rows, p);
  for (int64_t token = first > seen_from ? first : seen_from; token < rows.tokens; ++token) {
    const int64_t position = rows.position + token;
    if (group_mean(rows, token, p) < static_cast<float>(1.0 / static_cast<double>(position + 1)))
      at[queries.word(position) * stride] += static_cast<float>(queries.bit(position));
  }
}

struct Perturbing {
  const uint64_t* keys;  // [tokens, q_heads], null for no noise
  const float* table;    // table of gumbel_noise.h
  float power;           // 1 / tau
  float* totals;         // [tokens, q_heads]
};

/// (probability * e^noise) ^ (1 / tau); 0 for what is too small for a normal number.
__device__ float perturbed(const DeviceProbabilities& rows, const Perturbing& how, int64_t token, int64_t q_head,
                           int64_t p) {
  float weight = probability(rows, token, q_head, p);
  if (how.keys != nullptr)
    weight *= how.table[gumbel_place(how.keys[token * rows.q_heads + q_head], p / kNoiseRun) + p % kNoiseRun];
  if (how.power == 1) return weight;
  return weight < 1.17549435e-38f ? 0.0f : powf(weight, how.power);
}

/// Grid: query heads, tokens. A thread adds every kThreads-th entry, ascending, and threads by a fixed tree.
__global__ void __launch_bounds__(kThreads) totals_kernel(DeviceProbabilities rows, Perturbing how) {
  const int64_t q_head = blockIdx.x, token = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int64_t p = thread; p <= rows.position + token && p < rows.entries; p += kThreads)
    sum += perturbed(rows, how, token, q_head, p);
  sum = warp_sum(sum);
  auto* const sums = shared_memory<float>();  // [kWarps]
  if (thread % static_cast<int>(kWarp) == 0) sums[thread / static_cast<int>(kWarp)] = sum;
  __syncthreads();
  if (thread != 0) return;
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += sums[w];
  how.totals[token * rows.q_heads + q_head] = total;
}

__global__ void __launch_bounds__(kThreads)
    perturbed_kernel(DeviceProbabilities rows, Perturbing how, float* sums, int64_t stride) {
  const int64_t p = own_position();
  if (p >= rows.entries) return;
  const int64_t group = rows.q_heads / rows.kv_heads, head = int64_t{blockIdx.y} * group;
  float* const at = sums + int64_t{blockIdx.y} * stride + p;
  float sum = *at;
  for (int64_t token = first_that_sees(rows, p); token < rows.tokens; ++token) {
    for (int64_t h = head; h < head + group; ++h) {
      const float total = how.totals[token * rows.q_heads + h];
      if (total > 0) sum += perturbed(rows, how, token, h, p) / total;
    }
  }
  *at = sum;
}

dim3 grid_of(const DeviceProbabilities& rows) {
  return {blocks_for(rows.entries, kThreads), static_cast<unsigned>(rows.kv_heads)};
}

void require_rows(const DeviceProbabilities& rows) {
  require(rows.kv_heads > 0 && rows.q_heads % rows.kv_heads == 0,
          "attention_sums: q_heads must be a multiple of kv_heads");
}

}  // namespace

void add_moments_cuda(const DeviceProbabilities& rows, float* sums, int64_t stride, CudaStream stream) {
  require_rows(rows);
  launch(moments_kernel, grid_of(rows), kThreads, 0, stream, rows, sums, stride);
}

void mark_ignored_cuda(const DeviceProbabilities& rows, const IgnoredQueries& queries, float* words, int64_t stride,
                       CudaStream stream) {
  require_rows(rows);
  launch(ignored_kernel, grid_of(rows), kThreads, 0, stream, rows, queries, words, stride);
}

const float* DeviceGumbelTable::data(CudaStream stream) {
  if (table_.data() == nullptr) {
    const std::span<const float> table = gumbel_table();
    table_.reserve(static_cast<int64_t>(table.size_bytes()));
    cuda_upload(table_.data(), table.data(), static_cast<int64_t>(table.size_bytes()), stream);
  }
  return static_cast<const float*>(table_.data());
}

void add_perturbed_cuda(const DeviceProbabilities& rows, const PerturbedSum& what, float* sums, int64_t stride,
                        DeviceGumbelTable& table, CudaScratch& scratch, CudaStream stream) {
  require_rows(rows);
  const int64_t row_count = rows.tokens * rows.q_heads;
  Perturbing how{.keys = nullptr,
                 .table = nullptr,
                 .power = 1 / what.tau,
                 .totals = static_cast<float*>(scratch.device(row_count * int64_t{sizeof(float)}, stream))};
  if (what.noise) {
    std::vector<uint64_t> keys;
    for (int64_t row = 0; row < row_count; ++row)
      keys.push_back(what.noise(row % rows.q_heads, rows.position + row / rows.q_heads));
    how.table = table.data(stream);
    how.keys = static_cast<const uint64_t*>(scratch.upload(keys.data(), row_count * int64_t{sizeof(uint64_t)}, stream));
  }
  const dim3 grid(static_cast<unsigned>(rows.q_heads), static_cast<unsigned>(rows.tokens));
  launch(totals_kernel, grid, kThreads, kWarps * int64_t{sizeof(float)}, stream, rows, how);
  launch(perturbed_kernel, grid_of(rows), kThreads, 0, stream, rows, how, sums, stride);
}

}  // namespace kvarena::kernels
