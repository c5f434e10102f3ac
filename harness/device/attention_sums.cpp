#include "harness/device/attention_sums.h"

#include "kernels/column_sums/column_sums_cuda.h"

namespace kvarena::device {

void AttentionSums::add(const DeviceCache& cache, int64_t layer, const LayerQueries& queries, bool causal,
                        const float* lse, const kernels::ProbabilitySums& sums, kernels::CudaStream stream) {
  const LayerShape& shape = cache.shape(layer);
  const int64_t floats = (queries.q_len - 1) * queries.q_stride + shape.q_heads * shape.head_dim;
  const int64_t denominators = queries.q_len * shape.q_heads;
  // Rows may be parts of longer ones, of which the last ends with its own entries.
  const int64_t sums_bytes = ((shape.q_heads - 1) * sums.stride + cache.held(layer, shape.kv_heads - 1)) * 4;
  queries_.reserve((floats + denominators) * 4);
  sums_.reserve(sums_bytes);
  auto* const q = static_cast<float*>(queries_.data());
  kernels::cuda_upload(q, queries.q, floats * 4, stream);
  kernels::cuda_upload(q + floats, lse, denominators * 4, stream);
  kernels::cuda_upload(sums_.data(), sums.data, sums_bytes, stream);

  std::vector<int32_t> kept;
  for (const std::vector<int32_t>& head : cache.kept(layer)) kept.insert(kept.end(), head.begin(), head.end());
  const void* const lists =
      kept.empty() ? nullptr : lists_.upload(kept.data(), std::ssize(kept) * int64_t{sizeof(int32_t)}, stream);
  const std::vector<kernels::HeadRun> runs = cache.runs(layer, static_cast<const int32_t*>(lists));
  const kernels::ColumnSumsProblem problem{.q = q,
                                           .q_len = queries.q_len,
                                           .q_token_stride = queries.q_stride,
                                           .q_head_stride = shape.head_dim,
                                           .lse = q + floats,
                                           .runs = runs.data(),
                                           .dtype = shape.dtype,
                                           .causal = causal,
                                           .window = shape.window,
                                           .sums = static_cast<float*>(sums_.data()),
                                           .sums_stride = sums.stride};
  kernels::column_sums_cuda({.problems = {&problem, 1},
                             .q_heads = shape.q_heads,
                             .kv_heads = shape.kv_heads,
                             .head_dim = shape.head_dim,
                             .scale = attention_scale(shape)},
                            scratch_, stream);
  kernels::cuda_download(sums.data, sums_.data(), sums_bytes, stream);
  kernels::cuda_synchronize(stream);
}

}  // namespace kvarena::device
