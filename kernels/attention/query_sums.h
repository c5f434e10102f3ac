#pragma once
// Descriptions of the sums that an AttentionReader adds up, from which a device that has the probabilities can add them
// up there. attention_sums.h defines each sum.

#include <cstdint>
#include <functional>
#include <variant>

namespace kvarena::kernels {

/// add_probabilities(): [q_heads, stride].
struct ProbabilitySum {};

/// add_moments(): [kv_heads, 2, stride], sums and squares.
struct MomentSums {};

/// mark_ignored(): [kv_heads, words(), stride]. A ring with a bit for each of the newest `history` queries, 24 to a
/// number, which a float holds exactly.
struct IgnoredQueries {
  static constexpr int64_t kBits = 24;
  int64_t history = 1;
  int64_t first = 0;  // position of the first query that counts

  [[nodiscard]] constexpr int64_t words() const { return (history + kBits - 1) / kBits; }
  [[nodiscard]] constexpr int64_t word(int64_t position) const { return position % history / kBits; }
  [[nodiscard]] constexpr uint32_t bit(int64_t position) const { return 1U << (position % history % kBits); }
};

/// add_perturbed(): [kv_heads, stride].
struct PerturbedSum {
  float tau = 1;
  std::function<uint64_t(int64_t q_head, int64_t position)> noise;  // a query's key of gumbel_noise.h; none: no noise
};

using SumOfQueries = std::variant<ProbabilitySum, MomentSums, IgnoredQueries, PerturbedSum>;

/// A number for each list position of a run, `stride` apart from those of the next head or kind.
struct QuerySum {
  SumOfQueries what;
  float* data = nullptr;
  int64_t stride = 0;
};

}  // namespace kvarena::kernels
