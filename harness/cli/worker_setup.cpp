#include "harness/cli/worker_setup.h"

#include <nlohmann/json.hpp>

#include "harness/core/home.h"
#include "harness/core/own_files.h"

namespace kvarena::cli {
nlohmann::json setup_json(const WorkerSetup& setup) {
  const experiment::Overrides& overrides = setup.overrides;
  nlohmann::json value = {{"config_text", setup.config_text},
                          {"config_path", setup.config_path.string()},
                          {"set", overrides.set},
                          {"models", overrides.models},
                          {"data_dir", setup.data_dir.string()}};
  if (overrides.limit) value["limit"] = *overrides.limit;
  if (overrides.database) value["database"] = *overrides.database;
  return value;
}

WorkerSetup read_setup(const nlohmann::json& value) {
  WorkerSetup setup;
  value.at("config_text").get_to(setup.config_text);
  setup.config_path = value.at("config_path").get<std::string>();
  value.at("set").get_to(setup.overrides.set);
  value.at("models").get_to(setup.overrides.models);
  if (value.contains("limit")) setup.overrides.limit = value.at("limit").get<int64_t>();
  if (value.contains("database")) setup.overrides.database = value.at("database").get<std::string>();
  setup.data_dir = value.at("data_dir").get<std::string>();
  return setup;
}

experiment::ExperimentConfig config_of(const WorkerSetup& setup) {
  experiment::ExperimentConfig config = experiment::parse_config(
      setup.config_text, setup.config_path.string(),
      {.models_folder = own_file("configs/models"), .overrides = setup.overrides}, evaluate::registry_validators());
  config.path = setup.config_path;
  return config;
}

evaluate::ModelEvaluator model_evaluator(const experiment::ExperimentConfig& config, const WorkerSetup& setup) {
  return {config, {.home = kvarena_home(), .data_dir = setup.data_dir, .hardware = own_file("configs/hardware")}};
}

}  // namespace kvarena::cli
