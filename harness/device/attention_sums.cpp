#include "harness/device/attention_sums.h"

#include <algorithm>

#include "harness/core/error.h"
#include "kernels/column_sums/column_sums_cuda.h"

namespace kvarena::device {
namespace {

/// So many probabilities lie on the device at a time: 64 MiB.
constexpr int64_t kMostProbabilities = int64_t{1} << 24;
constexpr int64_t kMostTokens = 64;
constexpr kernels::CudaStream kStream = nullptr;  // a call waits for what it began: no other stream has to

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // for compilers that do not deduce aggregates

kernels::ColumnSumsArgs args_of(const LayerShape& shape, std::span<const kernels::ColumnSumsProblem> problems) {
  return {.problems = problems,
          .q_heads = shape.q_heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .scale = attention_scale(shape)};
}

/// Numbers of an entry in a kv head; 0 where heads that ask have their own.
int64_t width_of(const kernels::QuerySum& sum) {
  return std::visit(Overloaded{[](const kernels::ProbabilitySum&) { return int64_t{0}; },
                               [](const kernels::MomentSums&) { return int64_t{2}; },
                               [](const kernels::IgnoredQueries& queries) { return queries.words(); },
                               [](const kernels::PerturbedSum&) { return int64_t{1}; }},
                    sum.what);
}

}  // namespace

/// Queries on the device.
struct AttentionSums::Asked {
  const LayerShape* shape;
  const LayerQueries* queries;
  const float *q, *lse;

  /// The queries of tokens first .. first+count-1 over `runs`.
  [[nodiscard]] kernels::ColumnSumsProblem problem(int64_t first, int64_t count, const kernels::HeadRun* runs) const {
    return {.q = q + first * queries->q_stride,
            .q_len = count,
            .q_token_stride = queries->q_stride,
            .q_head_stride = shape->head_dim,
            .lse = lse + first * shape->q_heads,
            .runs = runs,
            .dtype = shape->dtype,
            .window = shape->window};
  }
};

/// A sum on the device.
struct AttentionSums::Growing {
  const kernels::QuerySum* sum;
  float* data;
  int64_t bytes;
};

AttentionSums::Asked AttentionSums::upload(const LayerShape& shape, const LayerQueries& queries, const float* lse) {
  const int64_t floats = (queries.q_len - 1) * queries.q_stride + shape.q_heads * shape.head_dim;
  const int64_t denominators = queries.q_len * shape.q_heads;
  queries_.grow((floats + denominators) * 4);
  auto* const q = static_cast<float*>(queries_.data());
  kernels::cuda_upload(q, queries.q, floats * 4, kStream);
  kernels::cuda_upload(q + floats, lse, denominators * 4, kStream);
  return {.shape = &shape, .queries = &queries, .q = q, .lse = q + floats};
}

void AttentionSums::add(Entries entries, const LayerQueries& queries, bool causal, const float* lse, float* sums,
                        int64_t stride) {
  const LayerShape& shape = entries.shape;
  const Asked asked = upload(shape, queries, lse);
  if (!entries.lists.empty()) list(entries);
  const kernels::HeadRun& last = entries.runs.back();
  // Rows may be parts of longer ones, of which the last ends with its own entries.
  const int64_t numbers = (shape.q_heads - 1) * stride + (last.index != nullptr ? last.index_count : last.entries);
  const int64_t bytes = numbers * int64_t{sizeof(float)};
  sums_.grow(bytes);
  kernels::cuda_upload(sums_.data(), sums, bytes, kStream);
  kernels::ColumnSumsProblem problem = asked.problem(0, queries.q_len, entries.runs.data());
  problem.causal = causal;
  problem.sums = static_cast<float*>(sums_.data());
  problem.sums_stride = stride;
  kernels::column_sums_cuda(args_of(shape, {&problem, 1}), scratch_, kStream);
  kernels::cuda_download(sums, sums_.data(), bytes, kStream);
  kernels::cuda_synchronize(kStream);
}

/// Makes indexes of the lists.
void AttentionSums::list(Entries& entries) {
  std::vector<int32_t> all;
  for (const std::span<const int32_t> head : entries.lists) all.insert(all.end(), head.begin(), head.end());
  all.push_back(0);  // a null index would list everything
  const auto* at =
      static_cast<const int32_t*>(lists_.upload(all.data(), std::ssize(all) * int64_t{sizeof(int32_t)}, kStream));
  for (size_t head = 0; head < entries.runs.size(); ++head) {
    entries.runs[head].index = at;
    entries.runs[head].index_count = std::ssize(entries.lists[head]);
    at += entries.runs[head].index_count;
  }
}

void AttentionSums::add(const DeviceCache& cache, int64_t layer, const LayerQueries& queries, const float* lse,
                        std::span<const kernels::QuerySum> sums) {
  const LayerShape& shape = cache.shape(layer);
  KVARENA_ASSERT(cache.full() && cache.length() == queries.position + queries.q_len, "queries of a part of the prompt");
  std::vector<Growing> growing;
  int64_t bytes = 0;
  for (const kernels::QuerySum& sum : sums) {
    if (width_of(sum) == 0) {
      add({.shape = shape, .runs = cache.runs(layer)}, queries, /*causal=*/true, lse, sum.data, sum.stride);
    } else {
      bytes += growing.emplace_back(&sum, nullptr, shape.kv_heads * width_of(sum) * sum.stride * 4).bytes;
    }
  }
  if (growing.empty()) return;
  sums_.grow(bytes);
  auto* at = static_cast<float*>(sums_.data());
  for (Growing& each : growing) {
    each.data = at;
    kernels::cuda_upload(each.data, each.sum->data, each.bytes, kStream);
    at += each.bytes / 4;
  }
  const Asked asked = upload(shape, queries, lse);
  const int64_t block = std::clamp<int64_t>(kMostProbabilities / (shape.q_heads * cache.length()), 1, kMostTokens);
  for (int64_t first = 0; first < queries.q_len; first += block) {
    const kernels::DeviceProbabilities rows =
        rows_of(cache, layer, asked, first, std::min(block, queries.q_len - first));
    for (const Growing& each : growing) add(rows, each);
  }
  for (const Growing& each : growing) kernels::cuda_download(each.sum->data, each.data, each.bytes, kStream);
  kernels::cuda_synchronize(kStream);
}

/// Probabilities of each of some tokens, by column sums over it alone.
kernels::DeviceProbabilities AttentionSums::rows_of(const DeviceCache& cache, int64_t layer, const Asked& asked,
                                                    int64_t first, int64_t count) {
  const LayerShape& shape = *asked.shape;
  const int64_t position = asked.queries->position + first, entries = position + count;
  const int64_t bytes = count * shape.q_heads * entries * 4;
  rows_.grow(bytes);
  kernels::cuda_clear(rows_.data(), bytes, kStream);
  auto* const data = static_cast<float*>(rows_.data());
  std::vector<std::vector<kernels::HeadRun>> runs(static_cast<size_t>(count), cache.runs(layer));
  std::vector<kernels::ColumnSumsProblem> problems;
  for (int64_t t = 0; t < count; ++t) {
    std::vector<kernels::HeadRun>& seen = runs[static_cast<size_t>(t)];
    for (kernels::HeadRun& run : seen) run.entries = position + t + 1;
    kernels::ColumnSumsProblem& problem = problems.emplace_back(asked.problem(first + t, 1, seen.data()));
    problem.sums = data + t * shape.q_heads * entries;
    problem.sums_stride = entries;
  }
  kernels::column_sums_cuda(args_of(shape, problems), scratch_, kStream);
  return {.data = data,
          .tokens = count,
          .q_heads = shape.q_heads,
          .kv_heads = shape.kv_heads,
          .entries = entries,
          .position = position};
}

void AttentionSums::add(const kernels::DeviceProbabilities& rows, const Growing& sum) {
  const int64_t stride = sum.sum->stride;
  std::visit(Overloaded{[](const kernels::ProbabilitySum&) {},
                        [&](const kernels::MomentSums&) { add_moments_cuda(rows, sum.data, stride, kStream); },
                        [&](const kernels::IgnoredQueries& queries) {
                          mark_ignored_cuda(rows, queries, sum.data, stride, kStream);
                        },
                        [&](const kernels::PerturbedSum& what) {
                          add_perturbed_cuda(rows, what, sum.data, stride, noise_, scratch_, kStream);
                        }},
             sum.sum->what);
}

}  // namespace kvarena::device
