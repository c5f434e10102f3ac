#pragma once
// Equal requests, decoded on one device: all at once, or as many at a time as its memory takes.

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "harness/cost_model/verification_schedule.h"
#include "harness/engine/session/session.h"

namespace kvarena {

struct BatchRunSettings {
  int64_t requests = 1;
  int64_t device_bytes = std::numeric_limits<int64_t>::max();  // for their caches
};

struct BatchRun {
  std::vector<std::unique_ptr<const SessionResult>> sessions;  // by request
  /// Memory: all caches on the device when the pass began. What is drafted is counted for verifiers with a schedule.
  std::vector<cost_model::ScheduledIteration> passes;
  bool scheduled = false;        // by a verifier's schedule
  double seconds = 0;            // of decoding, without starting requests
  double link_busy_seconds = 0;  // of full caches on their way to the device
  double link_bytes_per_s = 0;   // that the schedule counts on: the link's own, of a real one measured before the run
  int64_t late_verifies = 0;
  int64_t peak_pinned = 0;   // full caches at a time that stayed on the device
  int64_t fallen_back = 0;   // requests that stopped drafting
  int64_t peak_bytes = 0;    // on the device, starts of requests in a shared room or of a schedule included
  int64_t peak_running = 0;  // requests at a time
};

/// Calls to whoever watches a run.
struct BatchRunEvents {
  std::function<void()> started;  // the first request has its first token
  std::function<void(const SessionResult& first, double seconds)> passed;
};

/// Requests start from clones of the prompt's cache, the next one as soon as what it may come to hold fits beside what
/// the others may; time stands still while one starts. A verifier with a schedule() keeps full caches behind the
/// device and verifies by it; a request of its starts when its full cache has room beside its compressed one. Requests
/// whose layers can leave the device (YieldingIndex) share its room: as many run as fit when all layers have left, and
/// before each pass those leave that the part of a request does not hold. What a request holds is freed when it has
/// finished. A request whose method throws in a pass ends as failed. Throws UserError when not even one request fits,
/// and what a method throws when a request starts.
[[nodiscard]] BatchRun run_batch(Transformer& model, const Prefill& prompt, const Method& method,
                                 const SessionOptions& options, const BatchRunSettings& settings,
                                 const BatchRunEvents& events = {});

}  // namespace kvarena
