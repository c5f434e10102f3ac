#pragma once
// Whether two cells differ: pairing by sample, the noise floor, and what a difference amounts to. docs/verdicts.md says
// the same for readers of a report.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/experiment_data.h"
#include "reports/metric_look.h"
#include "reports/table.h"

namespace kvarena::reports {

/// The level that p-values are held against.
inline constexpr double kLevel = 0.05;

/// The fewest pairs whose sign-flip test can reach the level.
[[nodiscard]] int64_t fewest_pairs();

/// Fewer resamples for more values (10,000 up to 100 values, 1,000 of 1,000, at least 400): a report of 100,000 samples
/// stays a matter of two seconds, and the interval's own error stays a small part of its width.
[[nodiscard]] metrics::ResamplingOptions resampling_for(size_t values);

/// The values that are numbers.
[[nodiscard]] std::vector<double> finite(std::vector<double> values);

/// Values of the samples that two cells share, in the same order.
struct SamplePairs {
  std::vector<double> method;
  std::vector<double> baseline;
};

/// The pairs of a metric; nothing when the cells share none. Throws UserError naming cells and sample when the two were
/// asked different prompts: their difference would be no effect of a method.
[[nodiscard]] std::optional<SamplePairs> sample_pairs(const CellData& method, const CellData& baseline,
                                                      const std::string& metric);

/// The share of the baseline's value that each sample lost; samples of which the baseline has nothing are left out.
[[nodiscard]] std::vector<double> sample_drops(const CellData& method, const CellData& baseline,
                                               const std::string& metric);

/// The paired test over sample_pairs().
[[nodiscard]] std::optional<metrics::PairedDifference> pair_cells(const CellData& method, const CellData& baseline,
                                                                  const std::string& metric);

/// The mean over samples of |second run - first run| of the baseline, in stored units: no mean difference between the
/// two runs can be larger. Nothing when there was no second run. `model`: its label; empty: the first.
struct NoiseFloor {
  double value = 0;
  int64_t samples = 0;
};
[[nodiscard]] std::optional<NoiseFloor> noise_floor(const ExperimentData& data, const std::string& workload,
                                                    const std::string& metric, const std::string& model = "");

/// Distance of a method's tokens from the baseline's: it is measured at every token, so a few samples show it, but it
/// says nothing of better or worse.
struct TokenEvidence {
  metrics::MeanEstimate kl;  // nats a step, over samples
  double floor = 0;          // between two runs of the baseline

  [[nodiscard]] bool equal() const { return kl.mean == 0; }
  [[nodiscard]] bool differ() const { return kl.interval.low > floor; }
};

/// From KL of each sample; nothing without values.
[[nodiscard]] std::optional<TokenEvidence> token_evidence(const std::vector<double>& kl, double floor);

/// All that a verdict rests on, in stored units.
struct Evidence {
  metrics::PairedDifference test;
  double p_value = 1;  // of the test, or adjusted for the question that the test is a part of
  std::optional<NoiseFloor> floor;
  std::optional<TokenEvidence> tokens;
  double detectable = 0;  // 0: not known
};

/// p-values for one question: does a method differ from the baseline on any of its row's workloads? Hochberg's
/// adjustment over the tests that can reach the level at all; their samples are disjoint, so they are independent.
[[nodiscard]] std::vector<double> row_p_values(std::span<const metrics::PairedDifference> row);

/// The true mean difference that so many samples find in 80 of 100 experiments, from the median spread of the tests'
/// differences. It is no less than what the fewest pairs that can reach the level amount to, each by the usual size of
/// a pair's difference, or by the baseline's mean score where no pair differs. 0 when all tests have too few pairs.
[[nodiscard]] double detectable_difference(std::span<const metrics::PairedDifference> tests);

/// better, worse, or differs for a metric that is good in neither direction.
[[nodiscard]] Verdict direction_of(double difference, Better better);

/// The verdict, printed in the look's unit. The first of these that holds:
///
/// - better or worse (`differs` for a metric that is good in neither direction): the p-value is below 5%, the interval
///   leaves zero, and the difference is larger than two runs of the baseline differ by.
/// - no difference shown: no score differs and all tokens are the baseline's; or the difference is no larger than two
///   runs of the baseline differ by; or the interval holds zero where so many samples could have shown a difference,
///   which is given as `detectable`.
/// - too few samples to tell: all else. Fewer than six pairs cannot reach 5% however they fall; where the baseline has
///   no score to lose, no loss can be seen; and where interval and test disagree, more samples are needed.
[[nodiscard]] Difference verdict_of(const Evidence& evidence, const MetricLook& look);

/// Why there are too few samples to tell, and whether the tokens differ all the same; empty for other verdicts.
[[nodiscard]] std::string explanation(const Evidence& evidence, const MetricLook& look);

/// "20 samples, 2 better, 9 worse, p = 0.0654; KL 0.82 (0.7 to 0.93) nats a step".
[[nodiscard]] std::string evidence_text(const Evidence& evidence, const MetricLook& look);

}  // namespace kvarena::reports
