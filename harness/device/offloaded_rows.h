#pragma once
// A prompt's rows on the device whose cache is the host's.

#include <memory>
#include <vector>

#include "harness/device/device_mirrors.h"
#include "harness/device/device_model.h"
#include "harness/model/row_stream.h"

namespace kvarena::device {

/// The rows of a DeviceModel over the device's copy of a cache. Once they have finished, copy and cache are alike; a
/// copy that was given up half way, or that holds a layer at a time, is forgotten.
class OffloadedRows final : public RowStream {
 public:
  /// Arguments as those of Offload::rows_of(). All of them outlive it; `computed` grows by the rows that are loaded.
  OffloadedRows(DeviceModel& model, DeviceMirrors& mirrors, KvCache& host, int64_t tokens, bool by_layer,
                int64_t& computed);
  ~OffloadedRows() override;
  OffloadedRows(const OffloadedRows&) = delete;
  OffloadedRows& operator=(const OffloadedRows&) = delete;

  void load(std::span<const int32_t> tokens, std::span<const int32_t> positions) override;
  [[nodiscard]] QkvRows entries(const RowBlock& block) override;
  void pass(const RowBlock& block, const Store& store, const Watch& watch) override;
  void keep(std::span<const int32_t> rows) override;
  [[nodiscard]] std::span<const float> finish() override;

 private:
  DeviceModel* model_;
  KvCache* host_;
  bool by_layer_;
  int64_t* computed_;
  HeldCopies held_;
  std::unique_ptr<RowStream> rows_;
  std::vector<float> queries_;  // as the host has them
  bool alike_ = false;          // the copy and the cache
};

}  // namespace kvarena::device
