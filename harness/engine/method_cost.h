#pragma once
// Costs of a method's cache, measured on a model that is at hand, as a scheme that costs are modelled with.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/cost_model/roofline.h"
#include "harness/method/method.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// A request's cache after a prompt of `prompt` tokens, everything in entries of full KV: 100 is as many bytes as full
/// KV takes for 100 tokens.
struct MethodCost {
  int64_t prompt = 0;
  double resident = 0;  // on the device, indexes included
  double host = 0;      // behind it
  double attended = 0;  // entries of a head that a step attends to
  double fetched = 0;   // that a step brings from behind the device
};

/// Steps that are decoded to measure a cost.
inline constexpr int64_t kCostSteps = 16;

/// Costs after two prompts, the shorter first: `tokens` without the last kCostSteps, which are decoded behind it, and
/// half of that. Takes more than kCostSteps + 1 tokens. Throws UserError with what the method throws; `place` is what
/// messages call it.
[[nodiscard]] std::vector<MethodCost> measure_costs(Transformer& model, const Method& method,
                                                    std::span<const int32_t> tokens,
                                                    const std::shared_ptr<const ModelFacts>& facts,
                                                    const std::string& place);

/// The scheme at `entries`: every cost goes on along the line through the first measured one and the last, and none
/// falls below zero. What is resident beyond one entry an entry is taken for an index that each step reads.
/// `entry_bytes`: of full KV, of one token.
[[nodiscard]] cost_model::CacheScheme scheme_at(std::span<const MethodCost> costs, double entry_bytes, int64_t entries);

}  // namespace kvarena
