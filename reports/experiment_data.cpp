#include "reports/experiment_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/results/changed_label.h"
#include "metrics/stored_metrics.h"
#include "reports/grouped_rows.h"
#include "reports/metric_look.h"

namespace kvarena::reports {
namespace {

std::vector<std::string> labels(const std::vector<CellData>& cells, std::string results::CellRecord::*label) {
  std::vector<std::string> list;
  for (const CellData& cell : cells) {
    const std::string& name = cell.row.cell.*label;
    if (std::ranges::find(list, name) == list.end()) list.push_back(name);
  }
  return list;
}

std::string clocked(const std::string& name, results::Clock clock) {
  return clock == results::Clock::modelled ? modelled(name) : name;
}

/// Card values as text; strings without their quotes.
std::vector<std::pair<std::string, std::string>> read_card(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> card;
  const auto parsed = nlohmann::json::parse(text);
  for (const auto& [key, value] : parsed.items()) {
    card.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return card;
}

/// "gpt-4o (question 1a2b3c4d)": the judges whose marks an experiment holds, each once.
std::string judge_text(const std::vector<results::JudgeRecord>& judges) {
  constexpr size_t kShownDigits = 8;
  std::set<std::string> all;
  for (const results::JudgeRecord& judge : judges) {
    all.insert(fmt::format("{} (question {})", judge.model, judge.question_sha256.substr(0, kShownDigits)));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

/// Lets published values speak of rows whose labels tell a setting changed for the run.
void follow_labels(ExperimentData& data) {
  const auto follow = [&](std::string results::CellRecord::*label, std::string results::PublishedValue::*word) {
    const std::vector<std::string> all = labels(data.cells, label);
    for (results::PublishedValue& value : data.experiment.published)
      value.*word = results::label_among(all, value.*word).value_or(value.*word);
  };
  follow(&results::CellRecord::method, &results::PublishedValue::method);
  follow(&results::CellRecord::workload, &results::PublishedValue::workload);
  const std::vector<std::string> methods = labels(data.cells, &results::CellRecord::method);
  for (results::PublishedValue& value : data.experiment.published) {
    std::vector<std::string> others;
    for (const std::string& word : value.against) {
      const std::vector<std::string> fitting = results::labels_fitting(methods, word);
      others.insert(others.end(), fitting.begin(), fitting.end());
      if (fitting.empty()) others.push_back(word);
    }
    value.against = std::move(others);
  }
}

void mark_labels(ExperimentData& data) {
  for (const results::InventedData& made : data.invented) {
    const std::string marked = made.workload + kInventedLabel;
    for (CellData& cell : data.cells) {
      const bool same_model = made.model.empty() || cell.row.cell.model == made.model;
      if (same_model && cell.row.cell.workload == made.workload) cell.row.cell.workload = marked;
    }
    for (results::PublishedValue& value : data.experiment.published) {
      if (value.workload == made.workload) value.workload = marked;
    }
  }
}

/// Weighs a share of each sample by what it is a share of, so that a mean is of all those of the cell.
void pool(CellData& cell, const std::string& share, const std::string& whole) {
  auto& values = cell.values.own();
  const auto shares = values.find(share);
  const auto wholes = values.find(whole);
  if (shares == values.end() || wholes == values.end()) return;
  std::map<std::string, double> wanted;  // by sample
  double all = 0;
  for (const results::ValueRow& row : wholes->second.rows) all += wanted[row.sample_id] = row.value;
  if (all == 0) return;  // no sample wants any: each counts once
  const double mean = all / static_cast<double>(wanted.size());
  for (results::ValueRow& row : shares->second.rows) {
    const auto weight = wanted.find(row.sample_id);
    if (weight != wanted.end()) row.value *= weight->second / mean;
  }
}

/// Makes means of shares those of a data set: of all its calls, of all its instructions.
void pool_shares(CellData& cell) {
  pool(cell, metrics::kExactCallAccuracy.name, metrics::kGoldenCalls.name);
  for (const metrics::StoredMetric& share : {metrics::kInstructionsStrict, metrics::kInstructionsLoose}) {
    pool(cell, share.name, metrics::kInstructions.name);
  }
}

results::ExperimentRecord choose(const results::ResultsReader& reader, const std::string& name) {
  std::vector<results::ExperimentRecord> all = reader.experiments();
  std::vector<std::string> names;
  for (const auto& experiment : all) names.push_back(experiment.experiment);
  if (name.empty() && all.size() == 1) return all.front();
  const auto it = std::ranges::find(names, name);
  if (it != names.end()) return all[static_cast<size_t>(it - names.begin())];
  fail({.place = "--experiment",
        .found = name.empty() ? "none named" : fmt::format("\"{}\"", name),
        .expected = names.empty() ? "a database with an experiment" : fmt::format("one of: {}", fmt::join(names, ", ")),
        .nearest = name.empty() ? "" : nearest_name(name, names)});
}

/// Reads an experiment without series and events.
ExperimentData read_values(const results::ResultsReader& reader, const std::string& name,
                           const std::optional<std::vector<results::PublishedValue>>& published = std::nullopt) {
  ExperimentData data;
  data.experiment = choose(reader, name);
  if (published) data.experiment.published = *published;
  data.runs = reader.runs(data.experiment.experiment);
  data.inputs = reader.last_inputs(data.experiment.experiment);
  data.invented = results::invented_data(data.inputs);
  for (results::MetricDefinition& metric : reader.metric_definitions()) {
    std::string name = metric.metric;
    data.definitions.emplace(std::move(name), std::move(metric));
  }
  data.judges = reader.judges(data.experiment.experiment);
  const std::string judge = judge_text(data.judges);
  std::map<std::string, std::map<std::string, int64_t>> unjudged;  // by cell and metric
  for (const results::JudgeRequest& waits : reader.unjudged(data.experiment.experiment)) {
    ++unjudged[waits.cell_id][waits.metric];
  }
  for (results::CellRow& row : reader.cells(data.experiment.experiment)) {
    CellData cell{.row = std::move(row)};
    const std::string& id = cell.row.cell.cell_id;
    for (results::ValueColumn& column : reader.columns(id)) {
      std::string name = clocked(column.metric, column.clock);
      cell.values.own().emplace(std::move(name), std::move(column));
    }
    pool_shares(cell);
    cell.prompt_lengths = reader.prompt_lengths(id);
    cell.prompts = reader.prompts(id);
    cell.card = read_card(cell.row.cell.protocol_json);
    if (!judge.empty()) cell.card.emplace_back("judge", judge);
    cell.unjudged = unjudged[id];
    data.cells.push_back(std::move(cell));
  }
  for (CellData& cell : data.cells) average_draws(cell, primary_metric(data, cell.row.cell.workload));
  follow_labels(data);
  mark_labels(data);
  return data;
}

}  // namespace

std::string modelled(const std::string& metric) { return metric + " (modelled)"; }

std::string card_differences(const CellData& a, const CellData& b) {
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [key, value] : a.card) both[key].first = value;
  for (const auto& [key, value] : b.card) both[key].second = value;
  std::string text;
  both.erase("method_sha256");  // of the plugin that defines the method: what is compared, not how
  for (const auto& [key, values] : both) {
    if (values.first == values.second) continue;
    text += fmt::format("{}{}: {} / {}", text.empty() ? "" : "; ", key, values.first, values.second);
  }
  return text;
}

std::string CellData::question() const {
  const auto entry = std::ranges::find(card, "question", &std::pair<std::string, std::string>::first);
  return entry == card.end() ? "" : entry->second;
}

std::vector<double> CellData::numbers(const std::string& metric) const {
  std::vector<double> list;
  const auto it = values->find(metric);
  if (it == values->end()) return list;
  list.reserve(it->second.rows.size());
  for (const results::ValueRow& value : it->second.rows) list.push_back(value.value);
  return list;
}

bool CellData::counts() const {
  return row.state == results::CellState::done || row.state == results::CellState::running;
}

ExperimentData ExperimentData::of_cells(const std::function<bool(const CellData&)>& wanted) const {
  ExperimentData part{.experiment = experiment,
                      .runs = runs,
                      .inputs = inputs,
                      .invented = invented,
                      .definitions = definitions,
                      .judges = judges,
                      .cells = {}};
  std::ranges::copy_if(cells, std::back_inserter(part.cells), wanted);
  return part;
}

ExperimentData ExperimentData::of_model(const std::string& model) const {
  ExperimentData part = of_cells([&](const CellData& cell) { return cell.row.cell.model == model; });
  const std::vector<std::string> all = models();
  std::erase_if(part.experiment.published, [&](const results::PublishedValue& value) {
    return value.model != model && std::ranges::find(all, value.model) != all.end();
  });
  return part;
}

ExperimentData ExperimentData::of_methods(const std::vector<std::string>& methods) const {
  return of_cells(
      [&](const CellData& cell) { return std::ranges::find(methods, cell.row.cell.method) != methods.end(); });
}

std::vector<std::string> ExperimentData::questions() const {
  std::vector<std::string> all;
  for (const CellData& cell : cells) {
    std::string question = cell.question();
    if (std::ranges::find(all, question) == all.end()) all.push_back(std::move(question));
  }
  if (all.empty()) all.emplace_back();
  return all;
}

ExperimentData ExperimentData::of_question(const std::string& question) const {
  ExperimentData part = of_cells([&](const CellData& cell) { return cell.question() == question; });
  const std::vector<std::string> all = workloads(), own = part.workloads();
  const auto holds = [](const auto& list, const std::string& label) {
    return std::ranges::find(list, label) != list.end();
  };
  std::erase_if(part.experiment.published, [&](const results::PublishedValue& value) {
    return holds(all, value.workload) && !holds(own, value.workload);
  });
  return part;
}

ExperimentData ExperimentData::with_baseline(const std::string& method) const {
  const std::vector<std::string> known = methods();
  if (std::ranges::find(known, method) == known.end()) {
    fail({.place = "baseline",
          .found = fmt::format("\"{}\"", method),
          .expected = fmt::format("one of: {}", fmt::join(known, ", ")),
          .nearest = nearest_name(method, known)});
  }
  ExperimentData other = *this;
  for (CellData& cell : other.cells) cell.row.cell.baseline = cell.row.cell.method == method;
  return other;
}

std::vector<std::string> ExperimentData::models() const { return labels(cells, &results::CellRecord::model); }
std::vector<std::string> ExperimentData::workloads() const { return labels(cells, &results::CellRecord::workload); }
std::vector<std::string> ExperimentData::methods() const { return labels(cells, &results::CellRecord::method); }

const CellData* ExperimentData::find(const std::string& method, const std::string& workload,
                                     results::CellKind kind) const {
  const auto it = std::ranges::find_if(cells, [&](const CellData& cell) {
    return cell.row.cell.method == method && cell.row.cell.workload == workload && cell.row.cell.kind == kind;
  });
  return it == cells.end() ? nullptr : &*it;
}

void ExperimentData::for_request_lengths(
    const std::function<void(const std::string&, const ExperimentData&)>& use) const {
  const auto has_length = [](const CellData& cell) {
    return nlohmann::json::parse(cell.row.cell.workload_json).contains("request_tokens");
  };
  if (std::ranges::none_of(cells, has_length)) return use("", *this);
  use("", of_cells(std::not_fn(has_length)));
  for (const std::string& label : of_cells(has_length).workloads()) {
    use(label, of_cells([&](const CellData& cell) { return cell.row.cell.workload == label; }));
  }
}

std::string ExperimentData::baseline() const {
  const auto it = std::ranges::find_if(cells, [](const CellData& cell) { return cell.row.cell.baseline; });
  return it == cells.end() ? "" : it->row.cell.method;
}

ExperimentData read_experiment(const results::ResultsReader& reader, const std::string& name,
                               const std::optional<std::vector<results::PublishedValue>>& published) {
  ExperimentData data = read_values(reader, name, published);
  for (CellData& cell : data.cells) {
    const std::string& id = cell.row.cell.cell_id;
    const results::CellKind kind = cell.row.cell.kind;
    if (kind == results::CellKind::quality || kind == results::CellKind::noise_floor)
      average_contexts(cell, reader.contexts(id));
    for (const auto& [series, clock] : reader.series_names(id))
      cell.series.own()[clocked(series, clock)] = reader.series(id, series, clock);
    if (cell.row.cell.kind == results::CellKind::serving) cell.events = reader.events(id);
  }
  return data;
}

ExperimentData read_run(const results::ResultsReader& reader, const std::string& name) {
  ExperimentData data = read_values(reader, name);
  for (CellData& cell : data.cells) {
    cell.answers.emplace();
    for (const auto& [sample, text] : reader.predictions(cell.row.cell.cell_id)) (*cell.answers)[sample] = sha256(text);
  }
  return data;
}

}  // namespace kvarena::reports
