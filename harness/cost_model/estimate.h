#pragma once
// Modelled batches, times, rates and bounds of cache schemes on one machine, by context length.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/cost_model/acceptance_file.h"
#include "harness/cost_model/calibration.h"
#include "harness/cost_model/hardware.h"
#include "harness/cost_model/model_shape.h"
#include "harness/cost_model/modelled_run.h"
#include "harness/cost_model/roofline.h"

namespace kvarena::cost_model {

/// Input of one row. A scheme may differ by context: a method's share kept of 4k tokens was measured at 4k.
struct EstimateCase {
  CacheScheme scheme;
  Workload workload;
};

struct EstimateRow {
  EstimateCase of;
  std::optional<RunEstimate> run;  // nothing when not even one request fits, or not as many as were asked for
  double speedup = 0;              // tokens/s over full KV's at the same context; 0 when full KV does not fit
};

/// One row for each case. Full KV is estimated beside each to have the speed-up.
[[nodiscard]] std::vector<EstimateRow> estimate_rows(const Hardware& hardware, const ModelShape& shape,
                                                     const std::vector<EstimateCase>& cases,
                                                     std::optional<int64_t> batch = std::nullopt);

/// A verification schedule run on the modelled clock, with as many of the plan's requests as fit.
struct ScheduleRow {
  std::string schedule;  // "staggered", "lock_step", "sequential"
  int64_t requests = 0;
  std::optional<ModelledRun> run;  // nothing when no request fits
  bool fits = false;               // whether the run's peak does
};

/// The best draft-and-verify plan over the host link (Yao et al. 2026, arXiv:2605.17613, Eq. 11), at the entries that
/// requests have on average.
struct PlanRow {
  Workload workload;
  std::optional<DecodingOptimum> best;  // nothing when no plan fits
  std::optional<FullCacheEstimate> full;
  std::string drafter;                 // of the curve that the plan drafts by
  double short_iteration_seconds = 0;  // by Eq. 3, where all of the plan's requests reload
  std::vector<ScheduleRow> schedules;
};
/// `load_at_arrival`: schedules run with caches that come over the link when their requests arrive.
[[nodiscard]] std::vector<PlanRow> plan_rows(const Hardware& hardware, const ModelShape& shape,
                                             const AcceptanceFile& acceptance, const std::vector<Workload>& workloads,
                                             LinkModel link, bool load_at_arrival = false);

/// {"modelled": true, "hardware": ..., "model": ..., "efficiency": ...}: every input with its source.
[[nodiscard]] nlohmann::json inputs_json(const Hardware& hardware, const ModelShape& shape);
[[nodiscard]] nlohmann::json estimate_json(const EstimateRow& row);
[[nodiscard]] nlohmann::json plan_json(const PlanRow& row);
[[nodiscard]] nlohmann::json calibration_json(const Calibration& calibration);

}  // namespace kvarena::cost_model
