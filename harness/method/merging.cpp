#include "harness/method/merging.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace kvarena {
namespace {

constexpr double kEpsilon = 1e-6;

at::Tensor unit(const at::Tensor& x) { return x / x.norm(2, -1, /*keepdim=*/true).clamp_min(kEpsilon); }

/// Largest cosine of each row of `some` with rows of `others`, and that row. A block of rows at a time.
std::tuple<at::Tensor, at::Tensor> most_similar(const at::Tensor& some, const at::Tensor& others) {
  constexpr int64_t kBlock = 1024;
  const at::Tensor columns = unit(others).t();
  std::vector<at::Tensor> cosines, rows;
  for (const at::Tensor& block : unit(some).split(kBlock)) {
    auto [cosine, row] = block.matmul(columns).max(-1);
    cosines.push_back(cosine);
    rows.push_back(row);
  }
  return {at::cat(cosines), at::cat(rows)};
}

at::Tensor complement(const std::vector<int32_t>& kept, int64_t n) {
  std::vector<int64_t> others;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::ranges::binary_search(kept, i)) others.push_back(i);
  }
  return at::tensor(others, at::kLong);
}

}  // namespace

void Merging::parameters(ParameterVisitor& p) {
  p("merge", merge_).doc("merge values of entries that leave into the most similar ones that stay");
  p("merge_similarity", similarity_).min(0).max(1).doc("least cosine of both keys");
  p("merge_share", share_).min(0).max(1).doc("share of the leaving entries that merge, the most similar ones");
}

void Merging::apply(EntrySegment& entries, std::span<const std::vector<int32_t>> kept) const {
  const int64_t d = entries.shape().head_dim;
  for (size_t head = 0; head < kept.size(); ++head) {
    const auto kv_head = static_cast<int64_t>(head);
    const int64_t n = entries.entries(kv_head);
    const auto count = std::ssize(kept[head]);
    if (count == 0 || count == n) continue;
    at::Tensor keys = at::empty({n, d}, at::kFloat), values = at::empty({n, d}, at::kFloat);
    entries.read(kv_head, keys.data_ptr<float>(), values.data_ptr<float>());
    const at::Tensor stay = at::tensor(kept[head], at::kLong), leave = complement(kept[head], n);
    const at::Tensor kept_values = values.index_select(0, stay), left_values = values.index_select(0, leave);
    const auto [cosine, target] = most_similar(keys.index_select(0, leave), keys.index_select(0, stay));
    at::Tensor merged = cosine.ge(similarity_);
    if (share_ < 1) {
      const at::Tensor candidates = cosine.masked_fill(~merged, -std::numeric_limits<float>::infinity());
      merged = merged.logical_and(cosine.ge(candidates.quantile(1 - share_)));
    }
    const at::Tensor left_norm = left_values.norm(2, -1);
    const at::Tensor kept_norm = kept_values.norm(2, -1).index_select(0, target);
    const at::Tensor weight = cosine.clamp_min(0) * merged * left_norm / (left_norm + kept_norm + kEpsilon);
    const at::Tensor weights = at::zeros({count}, at::kFloat).index_add(0, target, weight);
    const at::Tensor sums = kept_values.index_add(0, target, weight.unsqueeze(1) * left_values);
    const at::Tensor means = (sums / (1 + weights).unsqueeze(1)).contiguous();
    for (int64_t i = 0; i < count; ++i) {
      if (weights.data_ptr<float>()[i] > 0)
        entries.overwrite(kv_head, kept[head][static_cast<size_t>(i)], nullptr, means.data_ptr<float>() + i * d);
    }
  }
}

}  // namespace kvarena
