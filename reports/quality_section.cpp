#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reports/byte_classes.h"
#include "reports/comparisons.h"
#include "reports/escape.h"
#include "reports/pooled.h"
#include "reports/sections.h"
#include "reports/table_shape.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

/// Mean and interval of a metric, or what the cell says instead.
TableCell score_cell(const CellData* cell, const std::string& metric, const MetricLook& look) {
  if (auto state = state_cell(cell)) return *state;
  const std::vector<double> values = finite(cell->numbers(metric));
  if (values.empty()) return {};
  const metrics::MeanEstimate estimate = metrics::bootstrap_mean(values, resampling_for(values.size()));
  TableCell number = number_cell(look.scale * estimate.mean);
  if (values.size() > 1) number.interval = {look.scale * estimate.interval.low, look.scale * estimate.interval.high};
  number.format = look.format;
  number.detail = fmt::format("{} samples", estimate.samples);
  mark_origin(number, cell->values->at(metric));
  return number;
}

/// Puts a verdict and what it rests on behind a number.
void judge_cell(TableCell& number, const Evidence& evidence, const MetricLook& look, Table& table) {
  number.difference = verdict_of(evidence, look);
  number.detail = evidence_text(evidence, look);
  if (const std::string why = explanation(evidence, look); !why.empty()) number.notes.push_back(footnote(table, why));
}

/// Marks a number of other samples than the baseline's.
void mark_samples(TableCell& number, const CellData& cell, const CellData* baseline, Table& table) {
  if (baseline == nullptr || !baseline->counts() || cell.row.done_samples == baseline->row.done_samples) return;
  number.notes.push_back(
      footnote(table, fmt::format("On {} samples where {} has {}; the difference is over those of both.",
                                  cell.row.done_samples, baseline->row.cell.method, baseline->row.done_samples)));
}

TableCell quality_cell(const ExperimentData& data, const std::string& method, const std::string& workload,
                       const Comparisons& comparisons, Table& table) {
  const CellData* cell = data.find(method, workload, results::CellKind::quality);
  const std::string metric = primary_metric(data, workload);
  const MetricLook look = look_of(data, metric);
  TableCell number = score_cell(cell, metric, look);
  if (!number.has_value()) return number;
  mark_samples(number, *cell, data.find(data.baseline(), workload, results::CellKind::quality), table);
  const CellComparison* comparison = comparisons.of(cell);
  if (comparison == nullptr) return number;
  if (!comparison->refusal.empty()) {
    TableCell refused = not_comparable_cell(number.value, comparison->refusal);
    refused.format = number.format;
    return refused;
  }
  if (!comparison->evidence) return number;
  judge_cell(number, *comparison->evidence, look, table);
  const Evidence* pooled = comparisons.pooled(method, workload);
  const Verdict verdict = number.difference->verdict;
  if (pooled != nullptr && (verdict == Verdict::too_few || verdict == Verdict::no_difference)) {
    number.detail += fmt::format("; over all workloads of this unit: {}, {}",
                                 verdict_name(verdict_of(*pooled, look).verdict), evidence_text(*pooled, look));
  }
  return number;
}

/// The mean that a paper prints for the cell, in the unit of its look; nothing where samples are project-made.
std::optional<double> published_value(const ExperimentData& data, const results::CellRecord& cell,
                                      const std::string& metric, const MetricLook& look) {
  if (cell.workload.ends_with(kInventedLabel)) return std::nullopt;
  for (const results::PublishedValue& value : data.experiment.published) {
    if (value.model != cell.model || value.workload != cell.workload || value.method != cell.method ||
        value.metric != metric || value.statistic != results::Statistic::mean || value.upper || !value.bound.empty())
      continue;
    const std::optional<UnitChange> change = unit_change(value.unit, look.unit);
    return change ? std::optional((*change)(value.value)) : std::nullopt;
  }
  return std::nullopt;
}

/// Scores that a table with metrics among its dimensions shows of a workload: those of its card, a judge's marks, then
/// what the config lists; a listed name stands for all that begin with it.
std::vector<std::string> shown_metrics(const ExperimentData& data, const std::string& workload) {
  std::vector<std::string> shown;
  const auto add = [&](const std::string& name) {
    if (!name.empty() && std::ranges::find(shown, name) == shown.end()) shown.push_back(name);
  };
  const CellData* cell = data.find(data.baseline(), workload, results::CellKind::quality);
  for (const auto& [key, value] : cell == nullptr ? std::vector<std::pair<std::string, std::string>>() : cell->card) {
    if (key != "metrics") continue;
    std::istringstream list(value);
    for (std::string entry; std::getline(list >> std::ws, entry, ',');) add(entry.substr(0, entry.find(' ')));
  }
  for (const results::JudgeRecord& judge : data.judges) {
    if (cell != nullptr && cell->values->contains(judge.metric)) add(judge.metric);
  }
  const json config = json::parse(data.experiment.config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return shown;
  for (const json& asked : config.value("metrics", json::array())) {
    const std::string name = asked.value("name", "");
    for (const CellData& each : data.cells) {
      for (const auto& [metric, values] : *each.values) {
        if (metric == name || metric.starts_with(name + "_")) add(metric);
      }
    }
  }
  return shown;
}

/// Everything that the table of scores holds, in work.
struct Scores {
  Table frame;
  bool with_metrics = false;  // metrics are a dimension; else each workload shows its own
  bool with_cards = false;    // rows differ in their protocol
  std::vector<PlacedCell> cells;
  std::map<std::string, TableCell> means;
  MethodColumn bytes, attended;
};

/// "qa_f1, %"
std::string metric_and_unit(const std::string& metric, const MetricLook& look) {
  return look.unit.empty() || look.unit == metric ? metric : metric + ", " + look.unit;
}

/// The mean of a metric over a method's workloads, as a column beside its scores.
void add_side(const ExperimentData& data, const std::string& method, const metrics::StoredMetric& metric,
              MethodColumn& column) {
  const MetricLook look = look_of(data, metric.name);
  TableCell cell = mean_of_pool(pool_of(data, method, results::CellKind::quality, metric.name), look);
  cell.interval.reset();
  column.column.unit = look.unit;
  column.column.format = look.format;
  if (cell.has_value()) column.cells[method_key(data.models().front(), method)] = std::move(cell);
}

void place(const ExperimentData& data, const std::string& label, const CellData& cell, const std::string& metric,
           TableCell number, Scores& scores) {
  const results::CellRecord& record = cell.row.cell;
  const MetricLook look = look_of(data, metric);
  number.samples = cell.row.done_samples;
  number.published = published_value(data, record, metric, look);
  PlacedCell placed{.place = {{"experiment", data.experiment.experiment},
                              {"model", record.model},
                              {"workload", record.workload},
                              {"method", label},
                              {"metric", metric}},
                    .cell = std::move(number),
                    .look = look};
  if (label == data.baseline()) placed.role = RowRole::baseline;
  if (record.kind == results::CellKind::noise_floor) placed.role = RowRole::noise_floor;
  if (scores.with_cards) placed.badge = Badge{.label = record.protocol_sha256.substr(0, 7), .details = cell.card};
  scores.cells.push_back(std::move(placed));
}

/// The baseline's second run, where there was one.
void place_second_run(const ExperimentData& data, Scores& scores) {
  for (const std::string& workload : data.workloads()) {
    const CellData* second = data.find(data.baseline(), workload, results::CellKind::noise_floor);
    const CellData* first = data.find(data.baseline(), workload, results::CellKind::quality);
    if (second == nullptr || first == nullptr || !first->counts()) continue;
    const std::string metric = primary_metric(data, workload);
    const MetricLook look = look_of(data, metric);
    TableCell cell = score_cell(second, metric, look);
    if (cell.has_value()) {
      if (const auto test = pair_cells(*second, *first, metric)) {
        judge_cell(cell,
                   {.test = *test,
                    .p_value = test->p_value,
                    .floor = noise_floor(data, workload, metric),
                    .tokens = cell_tokens(data, *second)},
                   look, scores.frame);
      }
      mark_samples(cell, *second, first, scores.frame);
    }
    place(data, data.baseline() + ", again", *second, metric, std::move(cell), scores);
  }
}

/// Places what one model has.
void place_model(const ExperimentData& data, const Comparisons& comparisons, Scores& scores) {
  const std::map<std::string, int> classes = byte_classes(data);
  const std::string model = data.models().front();
  for (const std::string& method : data.methods()) {
    const auto peers = classes.find(method);
    const size_t first = scores.cells.size();
    for (const std::string& workload : data.workloads()) {
      const CellData* cell = data.find(method, workload, results::CellKind::quality);
      if (cell == nullptr) continue;
      const std::string primary = primary_metric(data, workload);
      place(data, method, *cell, primary, quality_cell(data, method, workload, comparisons, scores.frame), scores);
      if (!scores.with_metrics) continue;
      for (const std::string& metric : shown_metrics(data, workload)) {
        if (metric != primary)
          place(data, method, *cell, metric, score_cell(cell, metric, look_of(data, metric)), scores);
      }
    }
    for (size_t at = first; at < scores.cells.size(); ++at)
      scores.cells[at].peers = peers == classes.end() ? -1 : peers->second;
    add_side(data, method, metrics::kKeptBytesFraction, scores.bytes);
    add_side(data, method, metrics::kAttendedShare, scores.attended);
    if (const Evidence* pooled = comparisons.pooled(method, data.workloads().front())) {
      judge_cell(scores.means[method_key(model, method)], *pooled,
                 look_of(data, primary_metric(data, data.workloads().front())), scores.frame);
    }
    if (method == data.baseline()) place_second_run(data, scores);
  }
}

bool cards_differ(const ExperimentData& data) {
  std::map<std::pair<std::string, std::string>, const CellData*> first;
  return std::ranges::any_of(data.cells, [&](const CellData& cell) {
    const results::CellRecord& record = cell.row.cell;
    if (record.kind != results::CellKind::quality) return false;
    return !card_differences(*first.try_emplace({record.model, record.workload}, &cell).first->second, cell).empty();
  });
}

/// Power of the comparison by workload: the noise floor that a difference must exceed, and the smallest true difference
/// that so many samples mostly find.
Table sensitivity_table(const ExperimentData& data, const Comparisons& comparisons) {
  Table table{.id = "sensitivity",
              .title = "What these samples can show",
              .caption =
                  "Noise floor: mean over samples of the absolute difference between two runs of the baseline. "
                  "Detectable: the true mean difference that a paired test of so many samples finds in 80 of 100 "
                  "experiments at the 5% level, from the median spread of the methods' differences; none where "
                  "samples are too few for any difference.",
              .columns = {{.title = "Workload", .numeric = false},
                          {.title = "Metric", .numeric = false},
                          {.title = "Samples", .format = {.style = NumberStyle::fixed, .digits = 0}},
                          {.title = "Noise floor"},
                          {.title = "Detectable difference"}}};
  for (const std::string& workload : data.workloads()) {
    const std::string metric = primary_metric(data, workload);
    const MetricLook look = look_of(data, metric);
    const int64_t samples = comparisons.samples(workload);
    if (samples == 0) continue;
    TableRow row{.cells = {text_cell(workload),
                           text_cell(metric_and_unit(metric, look)),
                           number_cell(static_cast<double>(samples)),
                           {},
                           {}}};
    if (const auto floor = noise_floor(data, workload, metric)) {
      row.cells[3] = number_cell(look.scale * floor->value);
      row.cells[3].detail = fmt::format("{} samples run twice", floor->samples);
    }
    if (const double detectable = comparisons.detectable(workload); detectable > 0)
      row.cells[4] = number_cell(look.scale * detectable);
    row.cells[3].format = row.cells[4].format = look.format;
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string quality_caption(const ExperimentData& data, const TableShape& shape) {
  const auto shows = [&](const char* word) { return shape.cell.find(word) != std::string::npos; };
  std::string text =
      shows("{low}") || shows("{interval}") ? "Mean score with its 95% bootstrap interval." : "Mean score.";
  if (shows("{difference}")) {
    text += fmt::format(
        " Difference: paired with {0} on the same samples; ▲ better, ▼ worse, ≈ no difference shown (and the "
        "difference that so many samples could show), ? too few samples to tell. A difference is shown when its "
        "interval leaves zero, its sign-flip test stays below 5%, and it exceeds what a second run of {0} differs by. "
        "A row asks one question, so its tests are corrected together (Hochberg), apart from other rows.",
        data.baseline());
    if (shape.average) text += " The mean's difference is a test of its own, over all pairs of all workloads.";
  }
  return text +
         " Resident: bytes after the prompt, of full KV's. Bold: best of the rows with about as many bytes (within a "
         "seventh), and what cannot be told from it.";
}

}  // namespace

Section quality_section(const ExperimentData& data, std::span<const ModelCells> models) {
  const TableShape shape = read_shape(data.experiment.table_json);
  Scores scores{.frame = {.id = "quality", .title = "Quality", .caption = quality_caption(data, shape)},
                .with_metrics = shape.names("metric"),
                .with_cards = cards_differ(data),
                .bytes = {.column = {.title = "Resident"}},
                .attended = {.column = {.title = "Attended a step"}}};
  Section section{.id = "quality", .title = "Quality by workload"};
  std::vector<Table> sensitivities;
  for (const ModelCells& part : models) {
    place_model(part.data, part.comparisons, scores);
    Table sensitivity = sensitivity_table(part.data, part.comparisons);
    if (models.size() > 1) {
      const std::string model = part.data.models().front();
      sensitivity.id += fmt::format("-{}", slug(model));
      sensitivity.title += fmt::format(", {}", model);
    }
    if (!sensitivity.rows.empty()) sensitivities.push_back(std::move(sensitivity));
  }
  std::vector<MethodColumn> sides;
  for (MethodColumn* side : {&scores.bytes, &scores.attended}) {
    if (!side->cells.empty()) sides.push_back(std::move(*side));
  }
  section.tables = shape_tables(scores.cells, shape, scores.frame, sides, scores.means);
  std::ranges::move(sensitivities, std::back_inserter(section.tables));
  return section;
}

}  // namespace kvarena::reports
