#pragma once
// Every method of one model against the baseline: what the verdicts of a report's table of scores rest on.

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "reports/verdict.h"

namespace kvarena::reports {

/// A method on a workload.
struct CellComparison {
  std::optional<Evidence> evidence;  // nothing where the cells share no sample
  std::string refusal;               // why their prompts make no pair
};

class Comparisons {
 public:
  /// Tests every cell of kind quality against the baseline's; a method's workloads are one question, so their p-values
  /// are adjusted together (row_p_values). Throws UserError when a sample was asked in two ways, unless
  /// `unlike_prompts`.
  Comparisons(const ExperimentData& data, bool unlike_prompts);

  /// The comparison of a cell; null for the baseline's and for cells without numbers.
  [[nodiscard]] const CellComparison* of(const CellData* cell) const;

  /// A method over all workloads whose scores have the unit and direction of this one's, each with equal weight: a
  /// question of its own, with a test of its own. Null where there are fewer than two.
  [[nodiscard]] const Evidence* pooled(const std::string& method, const std::string& workload) const;

  /// Most samples of a workload in which methods are paired with the baseline; 0 for none.
  [[nodiscard]] int64_t samples(const std::string& workload) const;
  /// detectable_difference() of the workload's tests.
  [[nodiscard]] double detectable(const std::string& workload) const;

 private:
  void compare_row(const ExperimentData& data, const std::string& method, bool unlike_prompts);
  void pool_row(const ExperimentData& data, const std::string& method);
  [[nodiscard]] std::vector<metrics::PairedDifference> tests(const std::string& workload) const;

  std::map<const CellData*, CellComparison> cells_;
  std::map<std::string, std::string> groups_;  // of each workload, the first one of its unit and direction
  std::map<std::pair<std::string, std::string>, Evidence> pooled_;  // by method and group
};

/// The cells of one model, and how its methods compare with the baseline.
struct ModelCells {
  ModelCells(ExperimentData cells, bool unlike_prompts) : data(std::move(cells)), comparisons(data, unlike_prompts) {}
  ModelCells(ModelCells&&) = default;
  ModelCells& operator=(ModelCells&&) = default;
  ModelCells(const ModelCells&) = delete;  // comparisons know data's cells by their address
  ModelCells& operator=(const ModelCells&) = delete;
  ~ModelCells() = default;

  ExperimentData data;
  Comparisons comparisons;
};

/// Whether the scores of all workloads have one unit and direction, so that their mean says something.
[[nodiscard]] bool have_one_look(const ExperimentData& data);

/// Evidence of the tokens of a cell's answers. Nothing where KL was not measured, or the baseline is not full KV, which
/// KL is the distance from.
[[nodiscard]] std::optional<TokenEvidence> cell_tokens(const ExperimentData& data, const CellData& cell);

}  // namespace kvarena::reports
