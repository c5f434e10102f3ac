#include "harness/device/step_inputs.h"

#include <algorithm>

namespace kvarena::device {
namespace {

/// Where the parts begin, in 4-byte words.
struct Layout {
  int64_t before, cos, sin, lists, end;
};
Layout layout_of(const InputBuffer::Sizes& sizes) {
  constexpr int64_t kLine = 32;
  const auto lines = [](int64_t words) { return (words + kLine - 1) / kLine * kLine; };
  const int64_t turns = lines(sizes.rows * sizes.half);
  const int64_t before = lines(sizes.rows), cos = before + lines(sizes.sequences), sin = cos + turns, end = sin + turns;
  return {before, cos, sin, end, end + lines(sizes.listed)};
}

}  // namespace

InputBuffer::Host InputBuffer::room(const Sizes& sizes) {
  sizes_ = sizes;
  const Layout at = layout_of(sizes);
  copied_.wait();
  if (at.end * 4 > device_.bytes()) {
    const int64_t bytes = std::max(at.end * 4, 2 * device_.bytes());
    pinned_.reset();
    pinned_ = std::make_unique<kernels::PinnedBuffer>(bytes);
    device_.reserve(bytes);
    ++moves_;
  }
  auto* words = static_cast<int32_t*>(pinned_->data());
  auto* floats = static_cast<float*>(pinned_->data());
  return {.tokens = {words, static_cast<size_t>(sizes.rows)},
          .before = {words + at.before, static_cast<size_t>(sizes.sequences)},
          .cos = floats + at.cos,
          .sin = floats + at.sin,
          .lists = {words + at.lists, static_cast<size_t>(sizes.listed)}};
}

StepInputs InputBuffer::tell(kernels::CudaStream stream) {
  const Layout at = layout_of(sizes_);
  kernels::cuda_upload(device_.data(), pinned_->data(), at.end * 4, stream);
  copied_.record(stream);
  const auto* words = static_cast<const int32_t*>(device_.data());
  const auto* floats = static_cast<const float*>(device_.data());
  return {.tokens = words,
          .before = words + at.before,
          .cos = floats + at.cos,
          .sin = floats + at.sin,
          .lists = words + at.lists};
}

}  // namespace kvarena::device
