#include "harness/cli/acceptance_of_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/results/results_reader.h"
#include "metrics/stored_metrics.h"
#include "reports/method_settings.h"
#include "reports/pooled.h"

namespace kvarena::cli {
namespace {

using cost_model::SeenRound;
using nlohmann::json;
using reports::CellData;
using reports::ExperimentData;

constexpr int64_t kFewestRounds = 5;  // that drafted a position; fewer make a jumpy tail

/// Rounds of the samples of one cell, whose two series are equally long.
void add_rounds(const CellData& cell, std::vector<SeenRound>& rounds) {
  const auto drafted = cell.series->find(metrics::kDraftedTokens.name);
  const auto accepted = cell.series->find(metrics::kAcceptedTokens.name);
  if (drafted == cell.series->end() || accepted == cell.series->end()) return;
  for (size_t i = 0; i < std::min(drafted->second.size(), accepted->second.size()); ++i) {
    const std::vector<float>& lengths = drafted->second[i].series.values;
    const std::vector<float>& kept = accepted->second[i].series.values;
    for (size_t round = 0; round < std::min(lengths.size(), kept.size()); ++round)
      rounds.push_back({static_cast<int64_t>(lengths[round]), static_cast<int64_t>(kept[round])});
  }
}

std::vector<SeenRound> rounds_of(const ExperimentData& data, const reports::DraftingMethods& group) {
  std::vector<SeenRound> rounds;
  for (const auto& [length, method] : group.lengths) {
    for (const std::string& workload : data.workloads()) {
      const CellData* cell = data.find(method, workload, results::CellKind::quality);
      if (cell != nullptr && cell->counts()) add_rounds(*cell, rounds);
    }
  }
  return rounds;
}

/// Bytes of the drafter's cache over full KV's.
std::optional<double> share_kept(const ExperimentData& data, const json& drafter) {
  if (!drafter.is_object() || !drafter.contains("name")) return std::nullopt;
  json settings = drafter;
  settings.erase("name");
  const auto methods = reports::methods_by_name(data);
  if (const auto alone = methods.find(drafter["name"].get<std::string>()); alone != methods.end()) {
    for (const reports::Asked& asked : alone->second) {
      const reports::Pool bytes =
          pool_of(data, asked.label, results::CellKind::quality, metrics::kKeptBytesFraction.name);
      if (asked.settings == settings && !bytes.values.empty()) return metrics::mean_of(bytes.values);
    }
  }
  if (settings.contains("keep") && settings["keep"].is_number()) return settings["keep"].get<double>();
  return std::nullopt;
}

cost_model::AcceptanceFile from_run(const std::filesystem::path& file) {
  const ExperimentData data = reports::read_experiment(results::ResultsReader(file), "");
  if (const std::vector<std::string> models = data.models(); models.size() != 1) {
    fail({.place = file.string(),
          .found = fmt::format("{} models ({})", models.size(), fmt::join(models, ", ")),
          .expected = "drafts of one model",
          .action = "run the experiment with --model into a database of its own"});
  }
  cost_model::AcceptanceFile found{.source =
                                       fmt::format("measured on {}, {} ({})", data.models().front(),
                                                   data.experiment.experiment, fmt::join(data.workloads(), ", "))};
  for (const reports::DraftingMethods& group : reports::drafting_methods(data)) {
    const std::vector<SeenRound> rounds = rounds_of(data, group);
    const std::optional<double> keep = share_kept(data, group.settings.value("drafter", json()));
    if (static_cast<int64_t>(rounds.size()) < kFewestRounds || !keep) continue;
    found.curves.push_back({.keep = *keep,
                            .drafter = group.label,
                            .acceptance = cost_model::AcceptanceCurve::from_rounds(rounds, kFewestRounds)});
  }
  if (found.curves.empty()) {
    fail({.place = file.string(),
          .found = fmt::format("no drafter with {} rounds and a share kept that is known", kFewestRounds),
          .expected = "quality cells of a verifier that drafts on a compressed cache",
          .action =
              "configs/acceptance.json is such an experiment; a drafter without `keep` has to run as a method too"});
  }
  return found;
}

}  // namespace

cost_model::AcceptanceFile acceptance_of(const std::filesystem::path& file) {
  return is_database(file) ? from_run(file) : cost_model::read_acceptance(file);
}

}  // namespace kvarena::cli
