#pragma once
// Memory of a pass under way and the operation that all blocks share.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/elementwise/elementwise.h"

namespace kvarena {

/// Grows to the largest size asked for and is never cleared: what a pass needs is written before it is read.
class Workspace {
 public:
  float* at_least(int64_t floats) {
    if (static_cast<int64_t>(data_.size()) < floats) data_.resize(static_cast<size_t>(floats));
    return data_.data();
  }

 private:
  std::vector<float> data_;
};

/// What the blocks of a layer hand to each other; R rows = new tokens of all sequences of the pass.
struct Activations {
  int64_t rows = 0;         // R
  int64_t hidden = 0;       // hidden_size
  float eps = 0;            // of every RMS norm
  float rotated_scale = 1;  // latent attention: YaRN factor of cos and sin of both sides, which queries take
  Workspace x;              // [R, hidden], the residual stream
  Workspace normed;         // [R, hidden], what a block reads
  Workspace projected;      // [R, hidden], what a block adds to the stream
  Workspace turn;           // cos [R, rotary / 2], then sin
  Workspace heads;          // attention: queries, and keys and values beside them or not
  Workspace latent;         // latent attention: keys [R, kv_lora_rank + rope]
  Workspace narrow;         // latent attention: queries on their way, then values of heads
  Workspace gates;          // feed-forward: gates and ups
  Workspace inner;          // feed-forward: what goes into the second product
  Workspace scores;         // routing: [R, experts]
  Workspace gathered;       // an expert's rows
  Workspace expert_output;

  /// y = RMS norm of x, `count` rows of `size` at distance `stride`; y may be x.
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

  /// The stream's first `count` rows, normalised, in `normed`.
  const float* normalise_stream(const std::vector<float>& weight, int64_t count) {
    float* to = normed.at_least(count * hidden);
    normalise(x.at_least(0), weight, to, count, hidden, hidden);
    return to;
  }
};

}  // namespace kvarena
