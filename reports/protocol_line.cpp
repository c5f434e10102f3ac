#include "reports/protocol_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "harness/results/left_out.h"

namespace kvarena::reports {
namespace {

/// Entries that say nothing to a reader, or that tables say themselves.
bool is_shown(const std::string& key) {
  const std::set<std::string> unsaid = {"kind", "metrics", "stop_tokens"};
  return !key.ends_with("_sha256") && !unsaid.contains(key);
}

void add_to_captions(Section& section, const std::string& sentence) {
  for (Table& table : section.tables) table.caption += (table.caption.empty() ? "" : " ") + sentence;
}

/// Questions and popularity of a cell's stored contexts, as its config has them; "" for other cells.
std::string asking_sentence(const CellData& cell) {
  using nlohmann::json;
  const json engine = json::parse(cell.row.cell.engine_json, nullptr, /*allow_exceptions=*/false);
  if (!engine.is_object() || !engine.contains("contexts")) return "";
  const json& contexts = engine.at("contexts");
  const std::string file = contexts.value("questions", "");
  const double popularity = contexts.value("popularity", 1.0);
  const auto shift = contexts.value("popularity_shift", int64_t{0});
  const auto past = contexts.value("past_requests", int64_t{0});
  return fmt::format(
      "Questions: {}. Contexts are asked about {}{}, {}.",
      file.empty() ? "half a sentence of the context to complete, a stand-in for questions that a model writes"
                   : fmt::format("of {}", file),
      popularity == 0 ? "alike" : fmt::format("in proportion to their rank to the power of -{:.3g}", popularity),
      shift == 0 ? "" : fmt::format(", their ranks {} further halfway", shift),
      past == 0 ? "from the first request on" : fmt::format("{} times before the first request that counts", past));
}

/// The baseline's cell whose card speaks for a workload: scored where anything is, else timed.
const CellData* described_cell(const ExperimentData& data, const std::string& workload) {
  for (const auto kind : {results::CellKind::quality, results::CellKind::timing, results::CellKind::serving}) {
    if (const CellData* cell = data.find(data.baseline(), workload, kind)) return cell;
  }
  return nullptr;
}

std::string words(std::string key) {
  std::ranges::replace(key, '_', ' ');
  return key;
}

}  // namespace

std::string protocol_line(const ExperimentData& data) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> entries;  // key, value, workloads
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = described_cell(data, workload);
    if (cell == nullptr) continue;
    for (const auto& [key, value] : cell->card) {
      if (is_shown(key) && !value.empty()) entries[key][value].push_back(workload);
    }
  }
  std::vector<std::string> said;
  std::set<std::string> weights;
  for (const results::RunInput& input : data.inputs) {
    if (input.kind == "model") weights.insert(input.name);
  }
  constexpr size_t kFewFiles = 3;
  if (!weights.empty() && weights.size() <= kFewFiles && !entries.empty())
    said.push_back(fmt::format("weights {}", fmt::join(weights, ", ")));
  for (const auto& [key, values] : entries) {
    std::vector<std::string> each;
    for (const auto& [value, workloads] : values)
      each.push_back(values.size() == 1 ? value : fmt::format("{} ({})", value, fmt::join(workloads, ", ")));
    said.push_back(fmt::format("{} {}", words(key), fmt::join(each, ", ")));
  }
  return said.empty() ? "" : fmt::format("Protocol of all rows: {}.", fmt::join(said, "; "));
}

void caption_question(Section& section, const std::string& question) {
  if (question.empty()) return;
  std::string sentence = fmt::format("Question {}.", question);
  if (question == "seen") sentence = "Question seen: prompts are compressed with the question inside.";
  if (question == "unseen") sentence = "Question unseen: contexts are compressed alone and asked afterwards.";
  if (question == "turns") {
    sentence =
        "Question turns: contexts are compressed alone and asked one question after the other, with reference answers "
        "between them.";
  }
  if (question == "first_seen") {
    sentence =
        "Question first seen: contexts are compressed with the first question inside; the others follow one after the "
        "other, with reference answers between them.";
  }
  add_to_captions(section, sentence);
}

void caption_asking(Section& section, const ExperimentData& data) {
  if (data.cells.empty()) return;
  const std::string asking = asking_sentence(data.cells.front());
  if (asking.empty()) return;
  add_to_captions(section, asking);
  for (Chart& chart : section.charts) chart.caption += (chart.caption.empty() ? "" : " ") + asking;
}

void caption_contexts(Section& section, const ExperimentData& data) {
  std::vector<std::string> said;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = data.find(data.baseline(), workload, results::CellKind::quality);
    if (cell != nullptr && cell->contexts > 0) said.push_back(fmt::format("{} in {}", cell->contexts, workload));
  }
  if (said.empty()) return;
  add_to_captions(section,
                  fmt::format("Intervals are over contexts, whose questions count as one: {}.", fmt::join(said, ", ")));
}

void caption_left_out(Section& section, const ExperimentData& data) {
  const bool several = data.models().size() > 1;
  std::set<std::string> said;
  for (const CellData& each : data.cells) {
    const results::CellRecord& cell = each.row.cell;
    const std::string left_out = results::left_out_text(cell);
    if (left_out.empty() || cell.kind == results::CellKind::noise_floor) continue;
    const std::string place = several ? fmt::format("{}, {}", cell.model, cell.workload) : cell.workload;
    const bool scored = cell.kind == results::CellKind::quality;
    const std::string sentence =
        scored ? fmt::format("{}: {} of {} samples; {}.", place, cell.planned_samples,
                             cell.planned_samples + cell.left_out_samples, left_out)
               : fmt::format("{}, {}: samples left out: {}.", place, results::name(cell.kind), left_out);
    if (said.insert(sentence).second) add_to_captions(section, sentence);
  }
}

}  // namespace kvarena::reports
