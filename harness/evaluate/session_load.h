#pragma once
// Recorded sessions as a load: requests that are turns of them, each sent its think time after the answer before it.

#include <vector>

#include "harness/engine/serving/serve.h"
#include "harness/evaluate/serving_point.h"

namespace kvarena::evaluate {

/// The sessions that a point's requests are turns of, in the order of the requests, which tell them
/// (datasets::RecordedTurn). The first turn here of each begins it. So many begin a second that `rate` requests do:
/// at the recorded times, stretched, or where there are none at random ones. Think times are the recorded ones, times
/// settings.think. Throws UserError where a request is no turn.
[[nodiscard]] std::vector<serving::SessionArrivals> recorded_sessions(const ServingPoint& point, double rate);

/// Adds to the activity of a result of sessions, by turn from the first one here, how many requests were answered and
/// their mean time to the first token.
void add_turns(results::SampleResult& result, const ServingPoint& point, const serving::ServingRun& run);

}  // namespace kvarena::evaluate
