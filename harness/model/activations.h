#pragma once
// Memory of a pass under way and the operation that all blocks share.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/elementwise/elementwise.h"

namespace kvarena {

/// Memory that grows to the largest size asked for and is never cleared: a pass writes it before it reads it.
class Workspace {
 public:
  float* at_least(int64_t floats) {
    if (static_cast<int64_t>(data_.size()) < floats) data_.resize(static_cast<size_t>(floats));
    return data_.data();
  }

 private:
  std::vector<float> data_;
};

/// Intermediate results of a layer's blocks; R rows = new tokens of all sequences of the pass.
struct Activations {
  int64_t rows = 0;         // R
  int64_t hidden = 0;       // hidden_size
  float eps = 0;            // epsilon of every RMS norm
  float rotated_scale = 1;  // latent attention: YaRN's factor on both sides, applied to queries
  Workspace x;              // [R, hidden], the residual stream
  Workspace normed;         // [R, hidden], input of a block
  Workspace projected;      // [R, hidden], output of a block, to be added to the stream
  Workspace turns[2];       // cos [R, turned_dim / 2], then sin: of most layers, and of those with their own rotation
  int64_t rotation = 0;     // number of the turns that the present layer takes
  std::vector<int32_t> positions;  // [R], original ones
  Workspace heads;                 // attention: queries, and keys, values and gates beside them or not; rows of states
  Workspace latent;                // latent attention: keys [R, kv_lora_rank + rope]
  Workspace narrow;                // latent attention: queries on their way, then values of heads; gated values
  Workspace gates;                 // feed-forward: gates and ups
  Workspace inner;                 // feed-forward: input of the second product
  Workspace scores;                // routing: [R, experts]
  Workspace gathered;              // an expert's rows
  Workspace expert_output;

  /// Writes the RMS norm of `count` rows of `size` at distance `stride`; `to` may be `from`.
  void normalise(const float* from, const std::vector<float>& weight, float* to, int64_t count, int64_t size,
                 int64_t stride) const {
    kernels::rms_norm({.x = from,
                       .weight = weight.data(),
                       .y = to,
                       .rows = count,
                       .n = size,
                       .x_stride = stride,
                       .y_stride = stride,
                       .eps = eps});
  }

  /// Normalises the stream's first `count` rows into `normed` and returns them; without weights, the stream itself.
  const float* normalise_stream(const std::vector<float>& weight, int64_t count) {
    if (weight.empty()) return x.at_least(0);
    float* to = normed.at_least(count * hidden);
    normalise(x.at_least(0), weight, to, count, hidden, hidden);
    return to;
  }
};

}  // namespace kvarena
