#pragma once
// A verification schedule on the modelled clock: iterations take what their bytes take.

#include <cstdint>
#include <vector>

#include "harness/cost_model/acceptance.h"
#include "harness/cost_model/staggered_decoding.h"
#include "harness/cost_model/verification_schedule.h"

namespace kvarena::cost_model {

struct ModelledSettings {
  DecodingMachine machine;
  DecodingLoad load;
  double kept = 0.25;        // c
  int64_t requests = 1;      // all at once, at time 0
  int64_t resident = 0;      // B_g of them, whose full caches stay on the accelerator; staggered alone
  int64_t draft_length = 1;  // x
  int64_t output_tokens = 256;
  ScheduleKind kind = ScheduleKind::staggered;
  bool load_at_arrival = false;  // whether requests' caches come over the link before they decode, or are there
  int64_t windows = 128;
  uint64_t seed = 0;  // seed of which drafts are accepted
};

struct ModelledRun {
  /// Memory: weights, resident compressed caches, full caches on their way or in use.
  std::vector<ScheduledIteration> iterations;
  double seconds = 0;
  int64_t tokens = 0;  // emitted, verified
  double peak_bytes = 0;
  double link_busy_seconds = 0;
  int64_t late_verifies = 0;

  [[nodiscard]] double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

/// Runs until every request has its output tokens. An iteration reads the weights, the compressed cache of each
/// drafting request and the full cache of each verifying one; one with nothing to do waits for the link. How many
/// drafts a verification accepts is drawn from `acceptance`; drafts beyond its reach are not accepted. Throws UserError
/// when the requests' compressed caches, the full ones that stay and one more do not fit beside the weights.
[[nodiscard]] ModelledRun run_modelled(const ModelledSettings& settings, const AcceptanceCurve& acceptance);

}  // namespace kvarena::cost_model
