#include "harness/device/device_feed_forward.h"

#include <algorithm>
#include <span>

#include "harness/device/device_products.h"
#include "harness/model/feed_forward.h"

namespace kvarena::device {

using kernels::CudaStream;
using kernels::WeightedRow;

void DeviceFeedForward::make_room(int64_t rows, int64_t& moves) {
  const ExpertConfig& expert = config_->expert;
  const int64_t widest =
      std::max({config_->intermediate_size, expert.intermediate_size, expert.shared_intermediate_size});
  inner_.at_least(2 * rows * widest, moves);
  if (expert.experts == 0) return;
  router_logits_.at_least(rows * expert.experts, moves);
  gathered_.at_least(rows * config_->hidden_size, moves);
  answers_.at_least(rows * config_->hidden_size, moves);
}

void DeviceFeedForward::add(const DeviceDense& weights, const float* in, int64_t rows, float* x, CudaStream stream) {
  compute(weights, in, rows, x, /*add=*/true, stream);
}

void DeviceFeedForward::add(const DeviceSparse& weights, const float* in, int64_t rows, float* x, CudaStream stream) {
  const int64_t hidden = config_->hidden_size;
  const Visits visits = route(weights, in, rows, stream);
  std::vector<WeightedRow> all;
  for (const std::vector<WeightedRow>& some : visits) all.insert(all.end(), some.begin(), some.end());
  const auto* list = static_cast<const WeightedRow*>(
      lists_.upload(all.data(), static_cast<int64_t>(all.size() * sizeof(WeightedRow)), stream));
  for (size_t expert = 0; expert < visits.size(); ++expert) {
    const int64_t count = std::ssize(visits[expert]);
    if (count == 0) continue;
    kernels::gather_rows_cuda(in, hidden, list, count, hidden, gathered_.data(), stream);
    compute(weights.experts[expert], gathered_.data(), count, answers_.data(), /*add=*/false, stream);
    kernels::add_rows_cuda(answers_.data(), list, count, hidden, x, hidden, stream);
    list += count;
  }
  if (weights.shared) add(*weights.shared, in, rows, x, stream);
}

DeviceFeedForward::Visits DeviceFeedForward::route(const DeviceSparse& weights, const float* in, int64_t rows,
                                                   CudaStream stream) {
  const int64_t experts = config_->expert.experts;
  kernels::matmul_cuda({.x = in,
                        .m = rows,
                        .x_stride = config_->hidden_size,
                        .w = &weights.router,
                        .y = router_logits_.data(),
                        .y_stride = experts},
                       stream);
  host_logits_.resize(static_cast<size_t>(rows * experts));
  kernels::cuda_download(host_logits_.data(), router_logits_.data(), rows * experts * 4, stream);
  kernels::cuda_synchronize(stream);
  Visits visits(static_cast<size_t>(experts));
  for (int64_t r = 0; r < rows; ++r) {
    const std::span row(host_logits_.data() + r * experts, static_cast<size_t>(experts));
    for (const ChosenExpert& chosen : choose_experts(config_->expert, row, weights.correction)) {
      visits[static_cast<size_t>(chosen.expert)].push_back({static_cast<int32_t>(r), chosen.weight});
    }
  }
  return visits;
}

void DeviceFeedForward::compute(const DeviceDense& weights, const float* in, int64_t rows, float* out, bool add,
                                CudaStream stream) {
  const int64_t size = weights.down.matrix.k();
  float* const inner = inner_.data();
  project(weights.gate_up, in, rows, inner, /*add=*/false, stream);
  kernels::silu_mul_cuda({.gate = inner,
                          .up = inner + size,
                          .out = inner,
                          .rows = rows,
                          .n = size,
                          .gate_stride = 2 * size,
                          .up_stride = 2 * size,
                          .out_stride = 2 * size},
                         stream);
  project(weights.down, inner, rows, out, add, stream, 2 * size);
}

}  // namespace kvarena::device
