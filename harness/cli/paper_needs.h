#pragma once
// Needs of a paper's experiment that this machine lacks, and how to bring them.

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "datasets/data_files.h"
#include "harness/evaluate/method_files.h"
#include "harness/experiment/config.h"

namespace kvarena::cli {

struct Missing {
  std::vector<const experiment::ModelEntry*> models;
  std::vector<std::string> data;              // workloads that are there as project-made samples only
  std::vector<evaluate::MethodFile> weights;  // fitted weights, drafters, speculative models, each name once
  bool embedder = false;                      // the sentence encoder that its metrics compare answers with
  std::vector<std::string> judged;            // metrics for which a judge is asked when a run is over

  /// Whether a run would have all its rows: a judge comes afterwards.
  [[nodiscard]] bool nothing() const { return models.empty() && data.empty() && weights.empty() && !embedder; }
};

/// Models, data and weights that are present, looked up once.
class PresentFiles {
 public:
  explicit PresentFiles(const std::filesystem::path& data_dir);

  [[nodiscard]] Missing missing(const experiment::ExperimentConfig& config) const;
  [[nodiscard]] const std::filesystem::path& home() const { return home_; }

 private:
  std::filesystem::path home_;
  std::map<std::string, datasets::WorkloadListing> workloads_;
};

/// Workloads come in families that are fetched together: longbench/qasper and longbench/lcc are longbench.
[[nodiscard]] std::string workload_family(const std::string& workload);

/// Names of what is missing, each with what brings it.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> shopping_list(const experiment::ExperimentConfig& config,
                                                                             const Missing& missing,
                                                                             const std::filesystem::path& home);

}  // namespace kvarena::cli
