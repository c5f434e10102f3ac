#pragma once
// Time and memory that a plan can be expected to take, from the sizes of models and samples alone.

#include <string>

#include "harness/experiment/plan.h"

namespace kvarena::experiment {

/// Expected time of one sample of one cell of the group, in steps of decoding. A prompt's token is an eighth of a step,
/// and so is a token of another request in the same pass: products bind them, memory binds a step. Cells of kind
/// quality share a prefill and the passes that decode, and each adds what a method computes on the prompt, taken as 15%
/// of a prefill.
[[nodiscard]] double expected_cost(const ExperimentConfig& config, const CellGroup& group,
                                   const WorkloadSamples& samples, const ModelSize& size);

/// Bytes that evaluating a sample of the group takes at most: the weights, and full caches of all requests at work.
[[nodiscard]] double expected_bytes(const ExperimentConfig& config, const CellGroup& group,
                                    const WorkloadSamples& samples, const ModelSize& size);

/// "about 12 min and 1.4 GiB on this machine" for what is not in `done` (may be null), on a machine that reads memory
/// at this rate. Empty where a model runs on a device, whose rates are not known here, and where nothing is left.
[[nodiscard]] std::string expected_use(const Plan& plan, const results::ResultsReader* done, double read_bytes_per_s);

}  // namespace kvarena::experiment
