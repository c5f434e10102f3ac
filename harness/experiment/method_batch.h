#pragma once
// Requests of a batch that are a method's own: {"name": "full", "batch": 16}, or by workload, and there by model, as
// papers print them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/experiment/config.h"

namespace kvarena::experiment {

class Problems;

/// Takes the key "batch" from a method's entry: a number, an object of numbers by workload, or of such objects by
/// model.
/// "" where there is none.
[[nodiscard]] std::string take_batch(nlohmann::json& entry, const std::string& key, Problems& problems);

/// Requests that are timed together: the method's own for these labels, else timing.batch.
[[nodiscard]] int64_t timed_batch(const ExperimentConfig& config, const ComponentEntry& method,
                                  const std::string& workload, const std::string& model);

/// Warnings for methods that name workloads and models that the config does not have.
[[nodiscard]] std::vector<std::string> unmatched_labels(const ExperimentConfig& config, const std::string& place);

}  // namespace kvarena::experiment
