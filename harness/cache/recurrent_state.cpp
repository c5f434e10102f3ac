#include "harness/cache/recurrent_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/core/error.h"
#include "kernels/delta_rule/delta_rule.h"
#include "kernels/elementwise/elementwise.h"

namespace kvarena {
namespace {

constexpr float kNormEps = 1e-6F;  // of queries and keys, as the reference library has it

/// Divides each head of x by its length and multiplies it by `factor`: the RMS norm of sqrt(n) times as much.
void normalise(float* x, int64_t tokens, int64_t stride, int64_t heads, int64_t n, float factor) {
  const std::vector<float> weight(static_cast<size_t>(n), factor / std::sqrt(static_cast<float>(n)));
  for (int64_t t = 0; t < tokens; ++t) {
    kernels::rms_norm({.x = x + t * stride,
                       .weight = weight.data(),
                       .y = x + t * stride,
                       .rows = heads,
                       .n = n,
                       .x_stride = n,
                       .y_stride = n,
                       .eps = kNormEps / static_cast<float>(n)});
  }
}

}  // namespace

RecurrentState::RecurrentState(const RecurrentShape& shape, LedgerPtr ledger)
    : shape_(shape),
      ledger_(std::move(ledger)),
      memory_(ledger_, Tier::device, shape.bytes()),
      log_(LedgerAllocator<float>(ledger_)) {}

void RecurrentState::advance(const float* rows, int64_t count, int64_t stride, float* out) {
  for (int64_t t = 0; held_.bytes() > 0 && t < count; ++t) {
    log_.insert(log_.end(), rows + t * stride, rows + t * stride + shape_.row());
  }
  take(rows, count, stride, out);
  tokens_ += count;
}

void RecurrentState::take(const float* rows, int64_t count, int64_t stride, float* out) {
  const int64_t channels = shape_.channels(), keys = shape_.k_heads * shape_.k_dim, before = shape_.taps - 1;
  auto* const newest = reinterpret_cast<float*>(memory_.data());
  std::vector<float> seen(static_cast<size_t>(count * channels));
  kernels::short_convolution({.x = rows,
                              .before = newest,
                              .weight = shape_.convolution,
                              .out = seen.data(),
                              .tokens = count,
                              .channels = channels,
                              .taps = shape_.taps,
                              .x_stride = stride,
                              .out_stride = channels});
  // The newest `before` of what was there and came.
  const int64_t stay = std::max<int64_t>(0, before - count);
  std::copy_n(newest + (before - stay) * channels, stay * channels, newest);
  for (int64_t i = stay; i < before; ++i) {
    std::copy_n(rows + (count - before + i) * stride, channels, newest + i * channels);
  }
  const std::vector<float> ones(static_cast<size_t>(channels), 1.0F);
  kernels::silu_mul({seen.data(), ones.data(), seen.data(), count, channels, channels, 0, channels});
  const float scale = 1 / std::sqrt(static_cast<float>(shape_.k_dim));
  normalise(seen.data(), count, channels, shape_.k_heads, shape_.k_dim, scale);
  normalise(seen.data() + keys, count, channels, shape_.k_heads, shape_.k_dim, 1);
  kernels::delta_rule({.q = seen.data(),
                       .k = seen.data() + keys,
                       .v = seen.data() + 2 * keys,
                       .decay = rows + channels,
                       .beta = rows + channels + shape_.v_heads,
                       .state = newest + before * channels,
                       .out = out,
                       .tokens = count,
                       .k_heads = shape_.k_heads,
                       .v_heads = shape_.v_heads,
                       .k_dim = shape_.k_dim,
                       .v_dim = shape_.v_dim,
                       .qkv_stride = channels,
                       .gate_stride = stride,
                       .out_stride = shape_.v_heads * shape_.v_dim});
}

std::span<const float> RecurrentState::numbers() const {
  return {reinterpret_cast<const float*>(memory_.data()), static_cast<size_t>(shape_.numbers())};
}

int64_t RecurrentState::bytes() const {
  return memory_.bytes() + held_.bytes() + static_cast<int64_t>(log_.capacity() * sizeof(float));
}

RecurrentState RecurrentState::clone(const LedgerPtr& ledger) const {
  RecurrentState copy({}, ledger);
  copy.shape_ = shape_;
  copy.memory_ = memory_.clone(ledger);
  copy.tokens_ = tokens_;
  return copy;
}

void RecurrentState::hold() {
  held_ = memory_.clone(ledger_);
  held_tokens_ = tokens_;
  log_.clear();
}

void RecurrentState::release() {
  held_ = {};
  log_ = LedgerVector<float>(LedgerAllocator<float>(ledger_));
}

void RecurrentState::rewind(int64_t tokens) {
  if (tokens == tokens_) return;
  KVARENA_ASSERT(held_.bytes() > 0 && tokens >= held_tokens_ && tokens < tokens_,
                 fmt::format("a state of {} tokens goes back to {}, held from {} on", tokens_, tokens, held_tokens_));
  memory_ = held_.clone(ledger_);
  const int64_t count = tokens - held_tokens_;
  log_.resize(static_cast<size_t>(count * shape_.row()));
  if (count > 0) take(log_.data(), count, shape_.row(), nullptr);
  tokens_ = tokens;
}

}  // namespace kvarena
