#pragma once
// Yield of rounds of drafting and verifying (VeriCache, section 4.1).

#include <cstdint>
#include <span>
#include <vector>

namespace kvarena::metrics {

/// Tokens of one round: `draft` [x] from the compressed cache, `verify` [x + 1] the full cache's greedy choices at the
/// same positions and one beyond.
struct DraftRound {
  std::vector<int64_t> draft;
  std::vector<int64_t> verify;
};

struct RoundOutcome {
  int64_t drafted = 0;
  int64_t accepted = 0;          ///< length of the longest prefix on which draft and verify agree
  std::vector<int64_t> emitted;  ///< the accepted tokens and the verifier's next one
};

/// Throws InternalError when verify is not one longer than draft.
[[nodiscard]] RoundOutcome verify_round(const DraftRound& round);

struct AcceptanceSummary {
  int64_t rounds = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t emitted = 0;
  [[nodiscard]] double acceptance_rate() const { return ratio(accepted, drafted); }  ///< pooled over rounds
  [[nodiscard]] double mean_acceptance_length() const { return ratio(accepted, rounds); }
  [[nodiscard]] double mean_tokens_per_round() const { return ratio(emitted, rounds); }

 private:
  static double ratio(int64_t part, int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

[[nodiscard]] AcceptanceSummary summarize_rounds(std::span<const RoundOutcome> rounds);

}  // namespace kvarena::metrics
