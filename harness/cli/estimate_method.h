#pragma once
// Cost of a method, measured on a model at hand, as a cache scheme for the cost model.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/cli/model_input.h"
#include "harness/cost_model/model_shape.h"
#include "harness/cost_model/roofline.h"

namespace kvarena::cli {

/// A request's cache after a prompt of `prompt` tokens, everything in entries of full KV in 16 bits: 100 is as many
/// bytes as full KV takes for 100 tokens.
struct MethodCost {
  int64_t prompt = 0;
  double resident = 0;  // on the device, indexes included
  double host = 0;      // on tiers behind the device
  double attended = 0;  // entries of a head that a step attends to
  double fetched = 0;   // entries that a step loads from behind the device
};

struct MeasuredMethod {
  std::string label;
  std::vector<MethodCost> costs;  // at two lengths, shorter first
};

/// Runs each method over prose of two lengths, the longer of at most 1536 tokens, and some steps of decoding. Throws
/// UserError for methods without a cache of their own: verifiers, reuse, placement.
[[nodiscard]] std::vector<MeasuredMethod> measure_methods(const std::vector<nlohmann::json>& methods,
                                                          const ModelOptions& options);

/// The scheme at `context` entries: every cost is extrapolated along the line through the two measured ones, and none
/// falls below zero. Resident bytes beyond full KV's are taken for an index that each step reads.
[[nodiscard]] cost_model::CacheScheme scheme_at(const MeasuredMethod& method, const cost_model::ModelShape& shape,
                                                int64_t context);

}  // namespace kvarena::cli
