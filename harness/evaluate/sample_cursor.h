#pragma once
// Samples of one workload by index, without keeping a data set in memory.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "datasets/workload.h"

namespace kvarena::evaluate {

/// Moves forward over a workload; asking for an earlier sample reopens it. Workloads are deterministic, so that
/// index i always means the same sample.
class SampleCursor {
 public:
  SampleCursor(std::unique_ptr<datasets::Workload> workload, datasets::OpenSettings settings);

  /// Sample `index`, counted from 0; nothing past the end. Throws UserError from the workload's files.
  [[nodiscard]] const datasets::Sample* at(int64_t index);
  [[nodiscard]] const datasets::WorkloadInfo& info() const { return workload_->info(); }

 private:
  std::unique_ptr<datasets::Workload> workload_;
  datasets::OpenSettings settings_;
  std::optional<datasets::SampleReader> reader_;
  std::optional<datasets::Sample> sample_;  // the one at next_ - 1
  int64_t next_ = 0;
};

}  // namespace kvarena::evaluate
