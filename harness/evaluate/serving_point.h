#pragma once
// Arrivals of a serving point's requests and the values of a run, whatever the requests begin with.

#include <span>
#include <string>
#include <vector>

#include "harness/engine/serving/serve.h"
#include "harness/evaluate/request.h"
#include "harness/evaluate/stored_values.h"
#include "harness/experiment/config.h"
#include "harness/results/records.h"

namespace kvarena::evaluate {

/// A point of a sweep.
struct ServingPoint {
  const experiment::ServingSettings& settings;
  size_t requests = 0;
  size_t point = 0;                     // place in settings.load
  uint64_t seed = 0;                    // of arrival times
  std::span<const Request> asked = {};  // the requests; empty of questions about stored contexts
};

[[nodiscard]] serving::BatchSettings batch_settings(const experiment::ServingSettings& settings);
[[nodiscard]] serving::Load all_at_once(size_t requests);
/// Arrivals of the point's requests when full KV serves `capacity` requests a second; `rate` is set to what is offered.
[[nodiscard]] serving::Load load_of(const ServingPoint& point, double capacity, double& rate);
/// Requests a second of a run in which all waited from the beginning.
[[nodiscard]] double capacity_of(const serving::ServingRun& run);
/// The reason why a method has no result at this point, "" when it has one: a request failed, or none was answered.
[[nodiscard]] std::string trouble_of(const serving::ServingRun& run);

/// A run and the scores of its answers, by request.
struct ScoredRun {
  const serving::ServingRun& run;
  double rate = 0;                            // requests offered a second
  const std::vector<double>& scores;          // 0 for what was not answered
  const std::vector<double>& full_scores;     // of full KV
  const std::vector<int64_t>& prompt_tokens;  // of each prompt
};

/// The workload's first metric of an answer, 0 where it has none.
[[nodiscard]] double score_of(const Request& request, std::span<const int32_t> tokens);
/// Sets the lengths of a point's prompts, and returns their hashes, one after the other.
[[nodiscard]] std::string describe_prompts(results::SampleResult& result, std::span<const Request> requests);

/// Seconds to the milliseconds of a series.
[[nodiscard]] std::vector<float> in_milliseconds(std::span<const double> seconds);
/// Describes a run's requests as one sample of the cell. `prompts`: the hashes of their prompts, one after the other.
/// Bytes that nobody knows are left out.
void describe_requests(results::SampleResult& result, const experiment::ServingSettings& settings,
                       const serving::ServingRun& run, const std::string& prompts, std::span<const double> scores);
/// Adds all values of a run, on one clock and of one storage, of requests that count: not the settings' first and last.
/// Queueing that nobody knows, where admitted_s is NaN, is left out.
void add_run(results::SampleResult& result, const Origin& origin, const experiment::ServingSettings& settings,
             const ScoredRun& scored);

}  // namespace kvarena::evaluate
