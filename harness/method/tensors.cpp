#include "harness/method/tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace kvarena {
namespace {

at::Tensor shuffled(int64_t rows, const RandomStream& draws, int64_t first) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int64_t row) { return draws.bits(static_cast<uint64_t>(first + row)); };
  std::ranges::sort(order, {}, key);
  return at::tensor(order, at::kLong);
}

/// Moments of one parameter's gradient.
struct Moments {
  at::Tensor first;
  at::Tensor second;
};

void clip_gradients(const std::vector<at::Tensor>& parameters) {
  double squares = 0;
  for (const at::Tensor& p : parameters) squares += p.grad().square().sum().item<double>();
  if (squares <= 1) return;
  for (const at::Tensor& p : parameters) p.grad().div_(std::sqrt(squares));
}

}  // namespace

at::Tensor tensor_of(const FittedTensor& weight) {
  return at::from_blob(const_cast<float*>(weight.values.data()), weight.shape, at::kFloat);
}

FittedTensor weight_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kFloat).contiguous();
  const auto* values = flat.data_ptr<float>();
  return {.shape = flat.sizes().vec(), .values = {values, values + flat.numel()}};
}

at::Tensor joined(const std::vector<FittedTensors>& records, const std::string& name) {
  std::vector<at::Tensor> parts;
  for (const FittedTensors& record : records) parts.push_back(tensor_of(record.at(name)));
  return at::cat(parts);
}

at::Tensor draw_rows(int64_t rows, int64_t count, const RandomStream& draws) {
  return std::get<0>(shuffled(rows, draws, 0).narrow(0, 0, std::min(rows, count)).sort());
}

at::Tensor draw_uniform(at::IntArrayRef sizes, double bound, const RandomStream& draws, int64_t first) {
  at::Tensor values = at::empty(sizes);
  auto* data = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = static_cast<float>(bound * (2 * draws.uniform(static_cast<uint64_t>(first + i)) - 1));
  }
  return values;
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& inverse) {
  const at::Tensor angles = positions.unsqueeze(1) * inverse.unsqueeze(0);  // [rows, d / 2]
  const at::Tensor cos = angles.cos().unsqueeze(1);
  const at::Tensor sin = angles.sin().unsqueeze(1);
  const std::vector<at::Tensor> half = x.chunk(2, -1);
  return at::cat({half[0] * cos - half[1] * sin, half[1] * cos + half[0] * sin}, -1);
}

at::Tensor rotated(const Rotation& rotation, const at::Tensor& x, const at::Tensor& positions) {
  const at::Tensor angles = positions.unsqueeze(-1) * at::tensor(rotation.inverse);
  const at::Tensor cos = angles.cos() * rotation.magnitude;
  const at::Tensor sin = angles.sin() * rotation.magnitude;
  const std::vector<at::Tensor> half = x.chunk(2, -1);
  return at::cat({half[0] * cos - half[1] * sin, half[1] * cos + half[0] * sin}, -1);
}

at::Tensor unrotated(const Rotation& rotation, const at::Tensor& x, const at::Tensor& positions) {
  return rotated(rotation, x, -positions) / (rotation.magnitude * rotation.magnitude);
}

at::Tensor mean_rotation(const Rotation& rotation, int64_t first, int64_t count) {
  const at::Tensor positions = at::arange(first, first + count, at::kDouble).unsqueeze(1);
  const at::Tensor angles = positions * at::tensor(rotation.inverse);  // [count, head_dim / 2]
  const at::Tensor cos = at::diag(angles.cos().mean(0)) * rotation.magnitude;
  const at::Tensor sin = at::diag(angles.sin().mean(0)) * rotation.magnitude;
  return at::cat({at::cat({cos, -sin}, 1), at::cat({sin, cos}, 1)}, 0);
}

void descend(std::vector<at::Tensor>& parameters, int64_t rows, const Descent& how, const RandomStream& draws,
             const std::function<at::Tensor(const at::Tensor& rows)>& loss) {
  constexpr double kBeta1 = 0.9;
  constexpr double kBeta2 = 0.999;
  constexpr double kEpsilon = 1e-8;
  std::vector<Moments> moments;
  for (at::Tensor& p : parameters) {
    p = p.detach().clone().requires_grad_(true);
    moments.push_back({.first = at::zeros_like(p), .second = at::zeros_like(p)});
  }
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < how.epochs; ++epoch) {
    const double progress = static_cast<double>(epoch) / static_cast<double>(how.epochs);
    const double rate = how.learning_rate * (1 + std::cos(std::numbers::pi * progress)) / 2;
    const at::Tensor order = shuffled(rows, draws, epoch * rows);
    for (int64_t begin = 0; begin < rows; begin += how.batch) {
      loss(order.narrow(0, begin, std::min(how.batch, rows - begin))).backward();
      const at::NoGradGuard updating;
      clip_gradients(parameters);
      ++step;
      for (size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor& gradient = parameters[i].grad();
        moments[i].first.mul_(kBeta1).add_(gradient, 1 - kBeta1);
        moments[i].second.mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
        const at::Tensor mean = moments[i].first / (1 - std::pow(kBeta1, step));
        const at::Tensor spread = (moments[i].second / (1 - std::pow(kBeta2, step))).sqrt_().add_(kEpsilon);
        parameters[i].mul_(1 - rate * how.weight_decay).addcdiv_(mean, spread, -rate);
        parameters[i].mutable_grad().zero_();
      }
    }
  }
  for (at::Tensor& p : parameters) p = p.detach();
}

}  // namespace kvarena
