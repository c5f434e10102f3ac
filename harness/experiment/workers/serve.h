#pragma once
// The worker's side of the socket: an evaluator answers the runner's requests.

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "harness/experiment/evaluator.h"

namespace kvarena::experiment {

/// A worker's config and evaluator.
struct Bench {
  std::unique_ptr<const experiment::ExperimentConfig> config;
  std::unique_ptr<experiment::Evaluator> evaluator;  // may refer to the config
};

/// Answers requests on the socket `channel` until the runner closes it. `open` makes a Bench of the runner's
/// WorkerSettings::setup. An exception becomes an answer too. When the evaluator is lost, the answer says so and
/// serving ends. A crash prints where it happened (crash_frames.h).
void serve(int channel, const std::function<Bench(const nlohmann::json& setup)>& open);

}  // namespace kvarena::experiment
