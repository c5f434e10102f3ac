#include "harness/cli/paper_needs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "datasets/workload.h"
#include "harness/core/home.h"
#include "harness/core/own_files.h"
#include "harness/evaluate/cell_procedures.h"
#include "harness/evaluate/local_embedder.h"
#include "harness/evaluate/method_files.h"
#include "metrics/registry.h"
#include "metrics/text_embedder.h"

namespace kvarena::cli {
namespace {

using experiment::ExperimentConfig;
using experiment::ModelEntry;
namespace fs = std::filesystem;

void add_once(std::vector<std::string>& list, const std::string& name) {
  if (std::ranges::find(list, name) == list.end()) list.push_back(name);
}

/// Weights of the config's methods for a model, which itself may be absent.
void add_weights(const ExperimentConfig& config, const ModelEntry& model, const fs::path& home, Missing& missing) {
  const evaluate::FileSources sources = evaluate::file_sources(model, home);
  for (const experiment::ComponentEntry& method : config.methods) {
    for (const evaluate::MethodFile& needed : evaluate::method_files(evaluate::spec_of(method), sources)) {
      const bool known =
          std::ranges::find(missing.weights, needed.missing, &evaluate::MethodFile::missing) != missing.weights.end();
      if (needed.path.empty() && !known) missing.weights.push_back(needed);
    }
  }
}

/// Whether a metric of the experiment compares answers by meaning.
bool embeds(const ExperimentConfig& config, const std::vector<std::string>& scores) {
  const auto reads_embedder = [](const std::string& id) {
    return metrics::find_metric(id).data == metrics::text_embedder_files;
  };
  return std::ranges::any_of(scores, reads_embedder) || (config.contexts && reads_embedder(config.contexts->quality));
}

}  // namespace

PresentFiles::PresentFiles(const fs::path& data_dir) : home_(kvarena_home()) {
  evaluate::use_local_embedder(home_);
  for (datasets::WorkloadListing& listing : datasets::list_workloads(data_dir)) {
    workloads_[listing.name] = std::move(listing);
  }
}

Missing PresentFiles::missing(const ExperimentConfig& config) const {
  Missing missing;
  std::vector<std::string> scores;
  for (const ModelEntry& model : config.models) {
    if (!fs::exists(model.file(home_))) missing.models.push_back(&model);
    add_weights(config, model, home_, missing);
  }
  for (const auto& workload : config.workloads) {
    const std::string& status = workloads_.at(workload.name).status;
    if (status != "present" && status != "generated") add_once(missing.data, workload.name);
    const datasets::WorkloadInfo& info = datasets::find_workload(workload.name, "papers").info;
    for (const std::string& id : evaluate::score_metrics(info, config)) add_once(scores, id);
    for (const std::string& id : evaluate::judge_metrics(info, config)) add_once(missing.judged, id);
  }
  const auto absent = [](const fs::path& file) { return !fs::exists(file); };
  missing.embedder = embeds(config, scores) && std::ranges::any_of(metrics::text_embedder_files(), absent);
  return missing;
}

std::string workload_family(const std::string& workload) { return workload.substr(0, workload.find('/')); }

std::vector<std::pair<std::string, std::string>> shopping_list(const ExperimentConfig& config, const Missing& missing,
                                                               const fs::path& home) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const ModelEntry* model : missing.models) lines.emplace_back(model->name, model->how_to_get(home));
  for (const evaluate::MethodFile& weights : missing.weights) lines.emplace_back(weights.missing, weights.get);
  if (missing.embedder) lines.emplace_back("sentence encoder", setup_command() + " fetches all-MiniLM-L6-v2");
  std::map<std::string, std::string> data;  // names by download; the family where one brings several
  for (const std::string& name : missing.data) {
    const auto [slot, fresh] = data.try_emplace(datasets::find_workload(name, "papers").info.download, name);
    if (!fresh) slot->second = workload_family(name);
  }
  for (const auto& [download, name] : data) lines.emplace_back(name, fmt::format("kvarena workloads pull {}", name));
  if (!missing.judged.empty()) {
    lines.emplace_back(
        fmt::format("a judge for {}", fmt::join(missing.judged, ", ")),
        fmt::format("after the run: kvarena judge {} --judge-url URL --judge-model NAME", config.output.database));
  }
  return lines;
}

}  // namespace kvarena::cli
