#pragma once
// The worker's side: asked over a socket, a evaluate answers.

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "harness/experiment/evaluator.h"

namespace kvarena::experiment {

/// What a worker evaluates with.
struct Bench {
  std::unique_ptr<const experiment::ExperimentConfig> config;
  std::unique_ptr<experiment::Evaluator> evaluate;  // may refer to the config
};

/// Answers what comes on the socket `channel` until the runner closes it. `open` turns the runner's
/// WorkerSettings::setup into a evaluate. Whatever is thrown on the way is an answer too. A evaluate that is lost says so
/// instead of its answer, and ends this.
void serve(int channel, const std::function<Bench(const nlohmann::json& setup)>& open);

}  // namespace kvarena::experiment
