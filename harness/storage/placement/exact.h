#pragma once
// The exact optimum of a small placement problem, to measure heuristics by.

#include <span>
#include <vector>

#include "harness/storage/placement/problem.h"

namespace kvarena::storage {

/// The choices of the largest total utility with every tier within its capacity: a multiple-choice knapsack over tiers,
/// solved as an integer programme. Takes time that grows exponentially with the number of contexts: a dozen are fine.
[[nodiscard]] std::vector<Choice> best_placement(std::span<const Context> contexts, std::span<const StorageTier> tiers,
                                                 double alpha);

/// Summed over contexts at their present choices.
[[nodiscard]] double total_utility(std::span<const Context> contexts, std::span<const StorageTier> tiers, double alpha);

}  // namespace kvarena::storage
