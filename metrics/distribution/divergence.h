#pragma once
// How far a lossy cache's distributions and tokens are from the full cache's, on the same prefix (VeriCache Eqs. 1-2).

#include <cstdint>
#include <optional>
#include <span>

namespace kvarena::metrics {

/// KL(full || lossy) of one step in nats over the whole vocabulary, from raw logits divided by `temperature`; both rows
/// are [vocab_size]. Log-softmax and sums in double. A token the full row excludes (-inf) contributes 0; one that only
/// the lossy row excludes makes it infinite; NaN stays NaN. Rows of equal logits give exactly 0. Throws InternalError
/// for rows of different or no length and for a temperature that is not positive.
[[nodiscard]] double kl_nats(std::span<const float> full, std::span<const float> lossy, double temperature = 1.0);
[[nodiscard]] double kl_nats(std::span<const double> full, std::span<const double> lossy, double temperature = 1.0);

/// One teacher-forced step.
struct StepDivergence {
  double kl_nats = 0;
  bool top1_agrees = false;   ///< the largest logit is at the same token; of equal logits the lowest token id counts
  double log_ratio_nats = 0;  ///< log p_full(token) - log p_lossy(token), 0 when no token was given
};

/// `token` is the continuation's token of this step, or -1.
[[nodiscard]] StepDivergence step_divergence(std::span<const float> full, std::span<const float> lossy, int64_t token,
                                             double temperature = 1.0);
[[nodiscard]] StepDivergence step_divergence(std::span<const double> full, std::span<const double> lossy, int64_t token,
                                             double temperature = 1.0);

struct SequenceDivergence {
  int64_t steps = 0;
  double kl_nats_sum = 0;  ///< KL_{1:T}: the figure papers print per request
  double kl_nats_mean = 0;
  double kl_nats_p95 = 0;  ///< over the steps
  double top1_agreement = 1;
  double log_ratio_nats_sum = 0;  ///< unbiased when the continuation was sampled from the full cache; can be negative
};

/// Sums in step order. No steps give zeros and an agreement of 1.
[[nodiscard]] SequenceDivergence sequence_divergence(std::span<const StepDivergence> steps);

/// The first position at which two token sequences differ; where one is the beginning of the other, the length of the
/// shorter; nothing when they are equal.
[[nodiscard]] std::optional<int64_t> first_divergence(std::span<const int64_t> full, std::span<const int64_t> lossy);

}  // namespace kvarena::metrics
