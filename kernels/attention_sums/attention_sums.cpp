#include "kernels/attention_sums/attention_sums.h"

#include <algorithm>
#include <vector>

#include "kernels/attention_sums/attention_sums_paths.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels {

ProbabilityRows token_rows(const ProbabilityRows& rows, int64_t t) {
  ProbabilityRows one = rows;
  one.first_token += t;
  one.tokens = 1;
  one.low += t;
  one.high += t;
  one.weights += t * rows.group * rows.weights_stride;
  one.factors += t * rows.group * rows.factors_stride;
  return one;
}

void add_probabilities(const ProbabilityRows& rows, float* sums, int64_t stride) {
  const AttentionSumsTable* fast = KVARENA_ACTIVE_TABLE(attention_sums_table);
  if (fast == nullptr) return add_probabilities_reference(rows, sums, stride);
  fast->probabilities(rows, sums, stride);
}

void add_moments(const ProbabilityRows& rows, float* sums, float* squares) {
  const AttentionSumsTable* fast = KVARENA_ACTIVE_TABLE(attention_sums_table);
  if (fast == nullptr) return add_moments_reference(rows, sums, squares);
  fast->moments(rows, sums, squares);
}

void mark_ignored(const ProbabilityRows& rows, const IgnoredQueries& queries, int64_t position, float* words,
                  int64_t stride) {
  std::vector<float> mean, squares;
  for (int64_t t = std::max<int64_t>(0, queries.first - position); t < rows.tokens; ++t) {
    const int64_t seen = position + t + 1;
    mean.assign(static_cast<size_t>(seen), 0.0F);
    squares.assign(mean.size(), 0.0F);
    add_moments(token_rows(rows, t), mean.data(), squares.data());
    const auto share = static_cast<float>(1.0 / static_cast<double>(seen));
    const auto bit = static_cast<float>(queries.bit(position + t));
    float* const to = words + queries.word(position + t) * stride;
    for (int64_t p = 0; p < seen; ++p) to[p] += mean[p] < share ? bit : 0.0F;
  }
}

void add_perturbed(const ProbabilityRows& rows, const uint64_t* keys, float tau, float* sums) {
  const AttentionSumsTable* fast = KVARENA_ACTIVE_TABLE(attention_sums_table);
  if (fast == nullptr) return add_perturbed_reference(rows, keys, tau, sums);
  static thread_local Scratch<float> work;
  int64_t most = 0;
  for (int64_t t = 0; t < rows.tokens; ++t) most = std::max(most, rows.high[t] - rows.low[t]);
  fast->perturbed(rows, keys, tau, sums, work.get(most + 2 * kCell));
}

void add_sum(const SumOfQueries& what, const ProbabilityRows& rows, int64_t position, float* sums, int64_t stride) {
  if (std::holds_alternative<ProbabilitySum>(what)) return add_probabilities(rows, sums, stride);
  if (std::holds_alternative<MomentSums>(what)) return add_moments(rows, sums, sums + stride);
  if (const auto* ignored = std::get_if<IgnoredQueries>(&what)) {
    return mark_ignored(rows, *ignored, position, sums, stride);
  }
  const auto& perturbed = std::get<PerturbedSum>(what);
  std::vector<uint64_t> keys;
  for (int64_t row = 0; perturbed.noise && row < rows.tokens * rows.group; ++row) {
    keys.push_back(perturbed.noise(rows.kv_head * rows.group + row % rows.group, position + row / rows.group));
  }
  add_perturbed(rows, perturbed.noise ? keys.data() : nullptr, perturbed.tau, sums);
}

}  // namespace kvarena::kernels
