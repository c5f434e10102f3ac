#pragma once
// A Transformer's pass in whose layers the host has a part while a device computes the rest: all of attention, or the
// choice of what is attended to.

#include <optional>
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

/// A choice that is the same in all layers for which anything is chosen.
struct SharedChoice {
  EntryLists lists;         // [kv_heads] beside the pass's own tokens; none: everything
  std::vector<bool> whole;  // [layers] that attend to everything all the same
};

/// Has the pass's hooks choose (HookAccess::views), and gives what their view shows. Where the choice is known before
/// the pass they are asked without rows; otherwise the host's cache gets the layer's entries first.
class ChosenSequence final : public HostSelector {
 public:
  /// Both must outlive it.
  ChosenSequence(const SequencePass& pass, const DeviceModel& model, bool known)
      : pass_(&pass), model_(&model), known_(known) {}

  /// Chooses for the first `layers` layers, where that is known before the pass: everything, or entries of the layers'
  /// own runs that are the same in all others. Otherwise nothing, and layers are chosen for one by one.
  [[nodiscard]] std::optional<SharedChoice> shared(int64_t layers);
  [[nodiscard]] bool known() const override { return known_; }
  AttentionSelection choose(int64_t layer, const LayerRows& rows) override;

 private:
  [[nodiscard]] AttentionSelection select(int64_t layer, const LayerQueries& queries) const;
  [[nodiscard]] AttentionSelection select_known(int64_t layer) const;

  const SequencePass* pass_;
  const DeviceModel* model_;
  bool known_;
  std::vector<AttentionSelection> made_;  // of the first layers
  std::vector<float> queries_;
  std::vector<std::vector<float>> turned_;  // queries of views, scaled
};

}  // namespace kvarena::device
