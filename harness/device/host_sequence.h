#pragma once
// A Transformer's pass in whose layers the host has a part while a device computes the rest: all of attention, or the
// choice of what is attended to.

#include <vector>

#include "harness/device/device_model.h"

namespace kvarena::device {

/// Queries of `count` rows as the host has them: those that the device brought, or scaled into `memory`.
[[nodiscard]] const float* host_queries(const DeviceModel& model, const QkvRows& brought, int64_t count,
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

/// Appends to the host's cache, has the pass's hooks choose there (HookAccess::views), and gives what their view shows.
class ChosenSequence final : public HostSelector {
 public:
  /// Both must outlive it.
  ChosenSequence(const SequencePass& pass, const DeviceModel& model) : pass_(&pass), model_(&model) {}

  AttentionSelection choose(int64_t layer, const LayerRows& rows) override;

 private:
  const SequencePass* pass_;
  const DeviceModel* model_;
  std::vector<float> queries_;
  std::vector<std::vector<float>> turned_;  // queries of views, scaled
};

}  // namespace kvarena::device
