#include "harness/engine/session/query_moments.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/rope/rope.h"

namespace kvarena {
namespace {

void add(std::vector<double>& sums, const at::Tensor& part) {
  const at::Tensor flat = part.contiguous();
  sums.resize(static_cast<size_t>(flat.numel()), 0.0);
  const auto* values = flat.data_ptr<double>();
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

}  // namespace

void BackRotation::tabulate(int64_t position, int64_t count) {
  if (position == position_ && count == count_) return;
  std::vector<int32_t> back(static_cast<size_t>(count));
  for (int64_t t = 0; t < count; ++t) back[t] = static_cast<int32_t>(-(position + t));
  const auto half = static_cast<int64_t>(rotation_.inverse.size());
  cos_.resize(static_cast<size_t>(count * half));
  sin_.resize(cos_.size());
  kernels::rotation_tables(back.data(), count, rotation_.inverse.data(), half,
                           static_cast<float>(1 / rotation_.magnitude), cos_.data(), sin_.data());
  position_ = position;
  count_ = count;
}

std::vector<float> BackRotation::unrotated(const LayerShape& shape, const LayerQueries& queries, int64_t first) {
  tabulate(queries.position, queries.q_len);
  const auto half = static_cast<int64_t>(rotation_.inverse.size());
  const int64_t row = shape.q_heads * shape.head_dim;
  std::vector<float> rows;
  rows.reserve(static_cast<size_t>((queries.q_len - first) * row));
  for (int64_t t = first; t < queries.q_len; ++t) {
    const float* const q = queries.q + t * queries.q_stride;
    rows.insert(rows.end(), q, q + row);
  }
  kernels::rotate({.x = rows.data(),
                   .tokens = queries.q_len - first,
                   .heads = shape.q_heads,
                   .head_dim = shape.head_dim,
                   .token_stride = row,
                   .head_stride = shape.head_dim,
                   .rotary = 2 * half,
                   .cos = cos_.data() + first * half,
                   .sin = sin_.data() + first * half});
  return rows;
}

void add_moments(QueryMoments& moments, const LayerShape& shape, BackRotation& rotation, const LayerQueries& queries) {
  const int64_t first = std::clamp<int64_t>(moments.left_out - queries.position, 0, queries.q_len);
  std::vector<float> rows = rotation.unrotated(shape, queries, first);
  const at::Tensor q = at::from_blob(rows.data(), {queries.q_len - first, shape.q_heads, shape.head_dim}, at::kFloat)
                           .transpose(0, 1)
                           .to(at::kDouble, /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::Contiguous);
  add(moments.mean, q.sum(1));
  add(moments.covariance, at::matmul(q.transpose(1, 2), q));
  moments.count += queries.q_len - first;
}

void finish_moments(QueryMoments& moments) {
  if (moments.count == 0) return;
  const auto count = static_cast<double>(moments.count);
  const size_t d = moments.covariance.size() / moments.mean.size();
  for (double& value : moments.mean) value /= count;
  for (size_t i = 0; i < moments.covariance.size(); ++i) {
    const size_t head = i / (d * d);
    const double product = moments.mean[head * d + i / d % d] * moments.mean[head * d + i % d];
    moments.covariance[i] = moments.covariance[i] / count - product;
  }
}

}  // namespace kvarena
