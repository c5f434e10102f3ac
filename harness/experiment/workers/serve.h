#pragma once
// The worker's side: asked over a socket, an evaluator answers.

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "harness/experiment/evaluator.h"

namespace kvarena::experiment {

/// What a worker evaluates with.
struct Bench {
  std::unique_ptr<const experiment::ExperimentConfig> config;
  std::unique_ptr<experiment::Evaluator> evaluator;  // may refer to the config
};

/// Answers what comes on the socket `channel` until the runner closes it. `open` turns the runner's
/// WorkerSettings::setup into an evaluator. Whatever is thrown on the way is an answer too. An evaluator that is lost says so
/// instead of its answer, and ends this.
void serve(int channel, const std::function<Bench(const nlohmann::json& setup)>& open);

}  // namespace kvarena::experiment
