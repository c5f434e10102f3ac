#pragma once
// Samples of one workload by index, without keeping a data set in memory.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "datasets/workload.h"

namespace kvarena::evaluate {

/// Moves forward over the samples of a workload that are asked for; asking for one before the last two that were asked
/// for reopens it. Workloads are deterministic, so that index i always means the same sample.
class SampleCursor {
 public:
  using Fits = std::function<bool(const datasets::Sample& sample)>;

  /// Over those of the workload's first `limit` samples that fit, each `draws` times, one after the other: "ID#1",
  /// "ID#2", ... where that is more than once.
  SampleCursor(std::unique_ptr<datasets::Workload> workload, datasets::OpenSettings settings, int64_t limit, Fits fits,
               int64_t draws = 1);

  /// The workload's first sample, whether it fits or not; null when there is none.
  [[nodiscard]] const datasets::Sample* first();
  /// Sample `index` of these, counted from 0; null past the end. Throws UserError from the workload's files.
  [[nodiscard]] const datasets::Sample* at(int64_t index);
  /// Whether the two samples begin with one text: a context, or all of a sample that is drawn twice.
  [[nodiscard]] bool same_context(int64_t index, int64_t next);
  /// Samples before the last one that was read, or before the end, that do not fit.
  [[nodiscard]] int64_t left_out() const { return left_out_; }
  [[nodiscard]] const datasets::WorkloadInfo& info() const { return workload_->info(); }

 private:
  [[nodiscard]] const datasets::Sample* fitting(int64_t index);

  std::unique_ptr<datasets::Workload> workload_;
  datasets::OpenSettings settings_;
  int64_t limit_;
  Fits fits_;
  int64_t draws_;
  std::optional<datasets::Sample> first_;
  std::optional<datasets::SampleReader> reader_;
  std::optional<datasets::Sample> sample_;  // the one at next_ - 1
  std::optional<datasets::Sample> before_;  // the one at before_index_, asked for before it
  std::optional<datasets::Sample> drawn_;   // one of them with the name of a draw
  int64_t before_index_ = -1;
  int64_t next_ = 0;
  int64_t left_out_ = 0;
};

}  // namespace kvarena::evaluate
