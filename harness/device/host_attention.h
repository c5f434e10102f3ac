#pragma once
// Attention on the host within a device's pass.

#include <cstdint>
#include <span>

#include "harness/device/downloaded_rows.h"

namespace kvarena::device {

/// A sequence whose entries are the host's, as is the choice of those it attends to. The device computes everything
/// else of its layers, and waits for it in each.
class HostAttention {
 public:
  virtual ~HostAttention() = default;

  /// [rows] of the tokens: what they are rotated by.
  [[nodiscard]] virtual std::span<const int32_t> positions() const = 0;
  /// Tokens of the prompt when they are known before its first pass, else 0 (dynamic rope scaling).
  [[nodiscard]] virtual int64_t prompt_length() const = 0;
  /// rows: what the device computed of the sequence's before the layer's attention; its lse and residual are not yet
  /// there. Writes attended [rows, q_heads, head_dim of the cache].
  virtual void attend(int64_t layer, const LayerRows& rows, float* attended) = 0;
};

}  // namespace kvarena::device
