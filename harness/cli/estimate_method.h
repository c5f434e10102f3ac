#pragma once
// Methods of the command line, measured on a model at hand, as cache schemes for the cost model.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/cli/model_input.h"
#include "harness/engine/method_cost.h"

namespace kvarena::cli {

struct MeasuredMethod {
  std::string label;
  std::vector<MethodCost> costs;  // at two lengths, shorter first
};

/// Runs each method over prose of two lengths, the longer of at most 1536 tokens, and some steps of decoding. Throws
/// UserError for methods without a cache of their own: verifiers, reuse, placement.
[[nodiscard]] std::vector<MeasuredMethod> measure_methods(const std::vector<nlohmann::json>& methods,
                                                          const ModelOptions& options);

}  // namespace kvarena::cli
