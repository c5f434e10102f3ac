#pragma once
// Helpers of methods with weights: weights as libtorch tensors, and gradient descent.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "harness/core/random.h"
#include "harness/method/fitter.h"
#include "harness/method/model_facts.h"

namespace kvarena {

/// A tensor over the weight's own memory, which must outlive it.
[[nodiscard]] at::Tensor tensor_of(const FittedTensor& weight);
[[nodiscard]] FittedTensor weight_of(const at::Tensor& tensor);

/// Records' tensors of one name, joined along their first dimension.
[[nodiscard]] at::Tensor joined(const std::vector<FittedTensors>& records, const std::string& name);

/// At most `count` different rows of 0 .. rows-1, ascending, as a tensor of int64.
[[nodiscard]] at::Tensor draw_rows(int64_t rows, int64_t count, const RandomStream& draws);

/// Uniform in [-bound, bound), a draw each; `first` is the index of the first draw.
[[nodiscard]] at::Tensor draw_uniform(at::IntArrayRef sizes, double bound, const RandomStream& draws, int64_t first);

/// Rows of heads [rows, heads, head_dim] rotated by their positions [rows]; inverse [head_dim / 2], radians a position.
[[nodiscard]] at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& inverse);

/// Rows [.., n or 1, head_dim] rotated by `positions` [n], times the rotation's magnitude.
[[nodiscard]] at::Tensor rotated(const Rotation& rotation, const at::Tensor& x, const at::Tensor& positions);
/// Rows before rotated() turned them.
[[nodiscard]] at::Tensor unrotated(const Rotation& rotation, const at::Tensor& x, const at::Tensor& positions);
/// Mean of the rotations of positions first .. first + count - 1, magnitude included: [head_dim, head_dim], in double.
[[nodiscard]] at::Tensor mean_rotation(const Rotation& rotation, int64_t first, int64_t count);

/// AdamW (Loshchilov and Hutter 2019) with decoupled weight decay, cosine learning rate and clipping of the gradient's
/// norm at 1.
struct Descent {
  int64_t epochs = 15;
  int64_t batch = 512;
  double learning_rate = 5e-3;
  double weight_decay = 0.01;
};

/// Lowers loss(rows), a scalar of the rows of a batch, by changing `parameters` in place. `rows` are shuffled in every
/// epoch.
void descend(std::vector<at::Tensor>& parameters, int64_t rows, const Descent& how, const RandomStream& draws,
             const std::function<at::Tensor(const at::Tensor& rows)>& loss);

}  // namespace kvarena
