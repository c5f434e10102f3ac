#include "harness/engine/query_moments.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace kvarena {
namespace {

/// Rows first .. q_len-1 turned back: [q_heads, rows, head_dim] in double.
at::Tensor unrotated(const LayerShape& shape, const Rotation& rotation, const LayerQueries& queries, int64_t first) {
  const int64_t rows = queries.q_len - first;
  const int64_t half = shape.head_dim / 2;
  at::Tensor out = at::empty({shape.q_heads, rows, shape.head_dim}, at::kDouble);
  auto* data = out.data_ptr<double>();
  for (int64_t t = 0; t < rows; ++t) {
    const auto position = static_cast<double>(queries.position + first + t);
    const float* row = queries.q + (first + t) * queries.q_stride;
    for (int64_t c = 0; c < half; ++c) {
      const double cos = std::cos(position * rotation.inverse[c]) / rotation.magnitude;
      const double sin = std::sin(position * rotation.inverse[c]) / rotation.magnitude;
      for (int64_t h = 0; h < shape.q_heads; ++h) {
        const double a = row[h * shape.head_dim + c];
        const double b = row[h * shape.head_dim + half + c];
        double* to = data + (h * rows + t) * shape.head_dim;
        to[c] = a * cos + b * sin;
        to[half + c] = b * cos - a * sin;
      }
    }
  }
  return out;
}

void add(std::vector<double>& sums, const at::Tensor& part) {
  const at::Tensor flat = part.contiguous();
  sums.resize(static_cast<size_t>(flat.numel()), 0.0);
  const auto* values = flat.data_ptr<double>();
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

}  // namespace

void add_moments(QueryMoments& moments, const LayerShape& shape, const Rotation& rotation,
                 const LayerQueries& queries) {
  const int64_t first = std::clamp<int64_t>(moments.left_out - queries.position, 0, queries.q_len);
  const at::Tensor q = unrotated(shape, rotation, queries, first);
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
