#pragma once
// Number of drafted tokens that a verification accepts, as a function of the draft length.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kvarena::cost_model {

/// An observed draft-and-verify round: `accepted` of `drafted` tokens, the first rejection ends the run.
struct SeenRound {
  int64_t drafted = 0;
  int64_t accepted = 0;
};

/// Measurement at one draft length: accepted tokens over drafted tokens.
struct AcceptancePoint {
  int64_t draft_length = 0;
  double rate = 0;
};

/// The acceptance rate gamma(x): expected accepted tokens of x drafted ones, over x.
/// Yao et al. 2026, arXiv:2605.17613, Table 2 and Eq. 11.
class AcceptanceCurve {
 public:
  /// Every token accepted with probability `beta` in [0, 1], independently: E[accepted] = beta (1 - beta^x) / (1 -
  /// beta).
  [[nodiscard]] static AcceptanceCurve independent(double beta, int64_t max_draft_length);

  /// Curve through rates at some draft lengths; the accepted length is linear between them and starts at (0, 0).
  /// Points need not be in order; throws UserError when empty, repeated, or when a rate is outside [0, 1].
  [[nodiscard]] static AcceptanceCurve measured(std::vector<AcceptancePoint> points);

  /// Curve from rounds of greedy drafting of any lengths. A round informs every shorter draft length too: position i
  /// was reached by all rounds that accepted the i - 1 before it, so the survival curve is a product of hazards (Kaplan
  /// and Meier 1958), censored where drafts ended. Reaches as far as a position was drafted in `min_rounds`.
  [[nodiscard]] static AcceptanceCurve from_rounds(std::span<const SeenRound> rounds, int64_t min_rounds = 1);

  [[nodiscard]] int64_t max_draft_length() const { return static_cast<int64_t>(accepted_.size()) - 1; }
  /// Expected accepted tokens of `draft_length` drafted, 0 <= draft_length <= max_draft_length().
  [[nodiscard]] double accepted(int64_t draft_length) const;
  /// gamma(x) = accepted(x) / x, x >= 1.
  [[nodiscard]] double rate(int64_t draft_length) const;

 private:
  explicit AcceptanceCurve(std::vector<double> accepted) : accepted_(std::move(accepted)) {}

  std::vector<double> accepted_;  // by draft length, [0] = 0
};

}  // namespace kvarena::cost_model
