#pragma once
// A Transformer's pass whose attention stays on the host while a device computes the rest of its layers.

#include <vector>

#include "harness/device/device_model.h"

namespace kvarena::device {

/// Queries of `count` rows as the host has them: those that the device brought, or scaled into `memory`.
[[nodiscard]] const float* host_queries(const DeviceModel& model, const AttentionRows& brought, int64_t count,
                                        std::vector<float>& memory);

/// Appends to the host's cache and attends there, as Transformer does (attend_sequence).
class HostSequence final : public HostAttention {
 public:
  /// Both must outlive it.
  HostSequence(const SequencePass& pass, const DeviceModel& model);

  [[nodiscard]] std::span<const int32_t> positions() const override { return positions_; }
  [[nodiscard]] int64_t prompt_length() const override { return pass_->cache->prompt_length; }
  void attend(int64_t layer, const LayerRows& rows, float* attended) override;

 private:
  const SequencePass* pass_;
  const DeviceModel* model_;
  std::vector<int32_t> positions_;  // [tokens]
  std::vector<float> queries_, running_, lse_;
};

}  // namespace kvarena::device
