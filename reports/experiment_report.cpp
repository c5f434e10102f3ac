#include "reports/experiment_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "harness/core/error.h"
#include "reports/escape.h"
#include "reports/protocol_line.h"
#include "reports/sections.h"
#include "reports/settings_charts.h"
#include "reports/table_shape.h"

namespace kvarena::reports {
namespace {

/// The cell's card. Of a server, what serves is no protocol but what is compared.
CellData protocol_of(const CellData& cell) {
  constexpr const char* kTemplate = "server_template";
  CellData protocol{.card = cell.card};
  const bool server = std::ranges::any_of(cell.card, [](const auto& entry) { return entry.first == kTemplate; });
  const auto judged = [](const auto& entry) { return entry.first == "engine" || entry.first == kTemplate; };
  if (server) std::erase_if(protocol.card, judged);
  return protocol;
}

/// Sentences on rows whose cards differ from the first row of the same workload and kind.
std::vector<std::string> unlike_cards(const ExperimentData& data) {
  std::map<std::tuple<std::string, std::string, results::CellKind>, const CellData*> first;
  std::vector<std::string> sentences;
  for (const CellData& cell : data.cells) {
    const auto [it, is_new] =
        first.try_emplace({cell.row.cell.model, cell.row.cell.workload, cell.row.cell.kind}, &cell);
    if (is_new || it->second->row.cell.protocol_sha256 == cell.row.cell.protocol_sha256) continue;
    if (const std::string differences = card_differences(protocol_of(*it->second), protocol_of(cell));
        !differences.empty()) {
      sentences.push_back(fmt::format("{}: {} and {} differ in {}", cell.row.cell.workload, it->second->row.cell.method,
                                      cell.row.cell.method, differences));
    }
  }
  return sentences;
}

/// Everything that is said of one model, but for its scores where `scores` is not set.
std::vector<Section> model_sections(const ModelCells& model, bool unlike, bool scores) {
  const ExperimentData& data = model.data;
  std::vector<Section> sections;
  if (auto summary = summary_section(model, unlike)) sections.push_back(std::move(*summary));
  if (scores) {
    Section quality = quality_section(data, {&model, 1});
    for (Chart& grid : settings_grids(data)) quality.charts.push_back(std::move(grid));
    if (!quality.tables.empty() || !quality.charts.empty()) sections.push_back(std::move(quality));
  }
  const auto remote = remote_prefix_section(data);
  for (auto& section :
       {needle_section(data), published_section(data), sample_section(data), draws_section(data),
        distance_section(data), length_section(data), server_section(data), memory_section(data),
        selection_section(data), link_section(data), verification_section(data), reuse_section(data),
        remote ? remote : speed_section(data), contexts_section(data), serving_section(data), outcome_section(data)}) {
    if (section) sections.push_back(*section);
  }
  return sections;
}

/// Adds the protocol to the first section with tables.
void tell_protocol(const ExperimentData& data, std::span<Section> sections) {
  const std::string protocol = protocol_line(data);
  const auto first = std::ranges::find_if(sections, [](const Section& each) { return !each.tables.empty(); });
  if (!protocol.empty() && first != sections.end()) first->paragraphs.push_back(protocol);
}

/// Everything that is said of cells whose questions were asked in one way; `joint`: with scores of all models together.
std::vector<Section> asked_sections(const ExperimentData& data, bool unlike, bool joint) {
  const std::vector<std::string> models = data.models();
  std::vector<ModelCells> parts;
  for (const std::string& model : models) parts.emplace_back(data.of_model(model), unlike);
  std::vector<Section> sections;
  if (joint) {
    Section quality = quality_section(data, parts);
    if (!quality.tables.empty()) sections.push_back(std::move(quality));
    tell_protocol(data, sections);
  }
  for (size_t at = 0; at < models.size(); ++at) {
    std::vector<Section> own = model_sections(parts[at], unlike, !joint);
    if (!joint) tell_protocol(parts[at].data, own);
    for (Section& section : own) {
      if (models.size() > 1) name_after(section, models[at]);
      sections.push_back(std::move(section));
    }
  }
  return sections;
}

std::string introduction(const ExperimentData& data) {
  int64_t samples = 0;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = data.find(data.methods().front(), workload, results::CellKind::quality);
    if (cell != nullptr) samples += cell->row.done_samples;
  }
  const std::string settings =
      fmt::format("{} settings of KV-cache methods on {}", data.methods().size(), fmt::join(data.models(), ", "));
  const std::string over = fmt::format("{}", fmt::join(data.workloads(), ", "));
  if (samples == 0) return fmt::format("{}, timed on {}, beside {}.", settings, over, data.baseline());
  return fmt::format("{}, {} samples over {}, compared sample by sample with {}.", settings, samples, over,
                     data.baseline());
}

/// Limits that no number of the report says.
Section limits_section() {
  return {
      .id = "limits",
      .title = "Limits",
      .paragraphs = {"Methods start from the same full prefill, but for those that read prompts in a way of their own, "
                     "and decode through the same kernels. Intervals are over samples of one seed and one model; "
                     "results on a small model and short prompts need not carry over to large ones."}};
}

}  // namespace

void name_after(Section& section, const std::string& name) {
  section.id += fmt::format("-{}", slug(name));
  section.title += " · " + name;
  for (Table& table : section.tables) table.id += fmt::format("-{}", slug(name));
  for (Chart& chart : section.charts) chart.id += fmt::format("-{}", slug(name));
}

std::vector<std::pair<std::string, std::string>> provenance(const ExperimentData& data) {
  std::vector<std::pair<std::string, std::string>> list;
  if (data.runs.empty()) return list;
  const results::RunRecord& run = data.runs.back();
  list = {{"experiment", data.experiment.experiment},
          {"config", run.config_path},
          {"config SHA-256", run.config_sha256},
          {"source revision", run.git_revision},
          {"build", run.build_json},
          {"libraries", run.libraries_json},
          {"host", run.host},
          {"kernel", run.kernel},
          {"processor", run.cpu_model},
          {"features", run.cpu_features},
          {"threads", fmt::format("{}", run.cpu_threads)},
          {"seed", fmt::format("{}", run.seed)},
          {"started", run.started_at},
          {"finished", run.finished_at},
          {"runs of this experiment", fmt::format("{}", data.runs.size())}};
  const bool several = data.models().size() > 1;
  for (const results::RunInput& input : data.inputs) {
    const std::string whose = several && !input.model.empty() ? fmt::format(" of {}", input.model) : "";
    list.emplace_back(fmt::format("{} {}{}", input.kind, input.name, whose), input.sha256);
  }
  return list;
}

Document experiment_report(const ExperimentData& all, const ReportOptions& options) {
  std::optional<ExperimentData> other;
  if (!options.baseline.empty()) other = all.with_baseline(options.baseline);
  const ExperimentData& data = other ? *other : all;
  const std::vector<std::string> unlike = unlike_cards(data);
  if (!unlike.empty() && !options.allow_unlike_cards) {
    fail({.place = data.experiment.experiment,
          .found = fmt::format("rows with different protocol cards ({})", fmt::join(unlike, " | ")),
          .expected = "rows that may be compared",
          .action = "--allow-unlike-cards compares them all the same and says how they differ"});
  }
  Document document{.title = data.experiment.title.empty() ? data.experiment.experiment : data.experiment.title,
                    .introduction = {introduction(data)},
                    .provenance = provenance(data)};
  for (const std::string& sentence : unlike) document.introduction.push_back("Not like for like. " + sentence);
  const bool joint = data.models().size() > 1 && read_shape(data.experiment.table_json).names("model");
  const std::vector<std::string> questions = data.questions();
  for (const std::string& question : questions) {
    std::optional<ExperimentData> part;
    if (questions.size() > 1) part = data.of_question(question);
    const ExperimentData& asked = part ? *part : data;
    for (Section& section : asked_sections(asked, options.allow_unlike_cards, joint)) {
      caption_question(section, question);
      caption_asking(section, asked);
      caption_contexts(section, asked);
      caption_left_out(section, asked);
      if (questions.size() > 1) name_after(section, "question " + question);
      document.sections.push_back(std::move(section));
    }
  }
  document.sections.push_back(limits_section());
  mark_invented(document, data.invented);
  return document;
}

Document joined_report(const std::string& title, const std::vector<ExperimentData>& experiments,
                       const ReportOptions& options) {
  Document joined{.title = title};
  std::vector<results::InventedData> invented;
  for (const ExperimentData& data : experiments) {
    const std::string& name = data.experiment.experiment;
    invented.insert(invented.end(), data.invented.begin(), data.invented.end());
    Document one = experiment_report(data, options);
    for (const std::string& paragraph : one.introduction)
      joined.introduction.push_back(fmt::format("{} ({}): {}", name, one.title, paragraph));
    for (Section& section : one.sections) {
      name_after(section, name);
      joined.sections.push_back(std::move(section));
    }
    for (auto& [key, value] : one.provenance)
      joined.provenance.emplace_back(fmt::format("{}: {}", name, key), std::move(value));
  }
  if (const std::string mark = results::invented_mark(invented); !mark.empty())
    joined.title += fmt::format(" ({})", mark);
  return joined;
}

}  // namespace kvarena::reports
