#pragma once
// Settings that `kvarena run` and its workers share: the config and the paths of files.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/evaluate/model_evaluator.h"
#include "harness/experiment/config.h"

namespace kvarena::cli {

struct WorkerSetup {
  std::string config_text;  // as read once by the runner: the file may change while it runs
  std::filesystem::path config_path;
  experiment::Overrides overrides;
  std::filesystem::path data_dir;  // folder of official data files; empty = the default
};

[[nodiscard]] nlohmann::json setup_json(const WorkerSetup& setup);
[[nodiscard]] WorkerSetup read_setup(const nlohmann::json& value);

/// Throws UserError with all problems of the config.
[[nodiscard]] experiment::ExperimentConfig config_of(const WorkerSetup& setup);
/// The evaluator of a worker; `config` must outlive it.
[[nodiscard]] evaluate::ModelEvaluator model_evaluator(const experiment::ExperimentConfig& config,
                                                       const WorkerSetup& setup);

}  // namespace kvarena::cli
