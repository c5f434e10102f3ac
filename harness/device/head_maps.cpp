#include "harness/device/head_maps.h"

namespace kvarena::device {
namespace {

/// The transform's images of the unit vectors: row i is a matrix's column i. [head_dim, head_dim]
std::vector<float> columns_of(const RowTransform& transform, HeadMaps::Use use, int64_t kv_head, int64_t head_dim) {
  std::vector<float> rows(static_cast<size_t>(head_dim * head_dim));
  for (int64_t i = 0; i < head_dim; ++i) rows[static_cast<size_t>(i * head_dim + i)] = 1;
  if (use == HeadMaps::Use::queries) {
    transform.apply_to_queries(kv_head, rows.data(), head_dim);
  } else {
    transform.undo(kv_head, rows.data(), head_dim);
  }
  return rows;
}

}  // namespace

HeadMaps::HeadMaps(const RowTransform& transform, Use use, int64_t kv_heads, int64_t head_dim) {
  kernels::CudaBuffer staged(head_dim * head_dim * 4);
  for (int64_t head = 0; head < kv_heads; ++head) {
    const std::vector<float> columns = columns_of(transform, use, head, head_dim);
    std::vector<float> matrix(columns.size());
    for (int64_t r = 0; r < head_dim; ++r) {
      for (int64_t c = 0; c < head_dim; ++c) matrix[r * head_dim + c] = columns[c * head_dim + r];
    }
    kernels::cuda_upload(staged.data(), matrix.data(), staged.bytes(), nullptr);
    heads_.emplace_back(head_dim, head_dim, kernels::DType::f32);
    heads_.back().store_rows(0, head_dim, static_cast<const float*>(staged.data()), head_dim, nullptr);
    kernels::cuda_synchronize(nullptr);
  }
}

void HeadMaps::apply(const float* x, int64_t x_stride, int64_t rows, int64_t q_heads, float* y,
                     kernels::CudaStream stream) const {
  const int64_t d = heads_.front().k(), group = q_heads / std::ssize(heads_);
  const auto map = [&](int64_t row, int64_t head, int64_t count, int64_t from_stride, int64_t to_stride) {
    kernels::matmul_cuda({.x = x + row * x_stride + head * d,
                          .m = count,
                          .x_stride = from_stride,
                          .w = &heads_[head / group],
                          .y = y + (row * q_heads + head) * d,
                          .y_stride = to_stride},
                         stream);
  };
  // Queries of a row's group stand together, those of a head a row apart: whichever are more in one call.
  if (rows < group) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t head = 0; head < q_heads; head += group) map(row, head, group, d, d);
    }
  } else {
    for (int64_t head = 0; head < q_heads; ++head) map(0, head, rows, x_stride, q_heads * d);
  }
}

HeadMapsPtr HeadMapStore::of(const RowTransformPtr& transform, HeadMaps::Use use, int64_t kv_heads, int64_t head_dim) {
  if (transform == nullptr) return nullptr;
  HeadMapsPtr& maps = known_[{transform, use}];
  if (maps == nullptr) maps = std::make_shared<HeadMaps>(*transform, use, kv_heads, head_dim);
  return maps;
}

}  // namespace kvarena::device
