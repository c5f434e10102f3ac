#include "reports/experiment_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "harness/core/error.h"
#include "reports/escape.h"
#include "reports/report_charts.h"

namespace kvarena::reports {
namespace {

using store::CellState;

constexpr double kPercent = 100;

/// One column of a per-method table: a metric, averaged over all samples of all workloads.
struct MetricColumn {
  std::string metric;
  Column column;
  double scale = 1;
};

std::vector<double> finite(std::vector<double> values) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  return values;
}

std::optional<Badge> badge(const CellData& cell) {
  return Badge{.label = cell.row.cell.protocol_sha256.substr(0, 7), .details = cell.card};
}

RowRole role(const ExperimentData& data, const std::string& method) {
  return method == data.baseline() ? RowRole::baseline : RowRole::ordinary;
}

/// What a cell that has no number says instead.
std::optional<TableCell> state_cell(const CellData* cell) {
  if (cell == nullptr) return TableCell{};
  if (cell->row.state == CellState::failed) return failed_cell(cell->row.reason);
  if (cell->row.state == CellState::inactive) return inactive_cell("the method never acted on these samples");
  return std::nullopt;
}

TableCell quality_cell(const ExperimentData& data, const std::string& method, const std::string& workload) {
  const CellData* cell = data.find(method, workload, store::CellKind::quality);
  if (auto state = state_cell(cell)) return *state;
  const std::string metric = primary_metric(data, workload);
  const std::vector<double> values = finite(cell->numbers(metric));
  if (values.empty()) return {};
  const MeanEstimate estimate = bootstrap_mean(values, resampling_for(values.size()));
  TableCell number = number_cell(kPercent * estimate.mean);
  if (values.size() > 1) number.interval = {kPercent * estimate.interval.low, kPercent * estimate.interval.high};
  number.detail = fmt::format("{} samples", estimate.samples);
  const CellData* baseline = data.find(data.baseline(), workload, store::CellKind::quality);
  if (baseline != nullptr && baseline != cell) {
    number.difference = paired_verdict(*cell, *baseline, metric, Better::higher, kPercent);
  }
  return number;
}

Section quality_section(const ExperimentData& data) {
  Table table{.id = "quality",
              .title = "Quality",
              .caption =
                  "Mean score in percent with its 95% bootstrap interval; below it the paired difference to full "
                  "KV on the same samples: ▲ better, ▼ worse, ≈ within noise.",
              .columns = {{.title = "Method", .numeric = false}}};
  for (const std::string& workload : data.workloads()) {
    table.columns.push_back({.title = workload, .unit = primary_metric(data, workload), .better = Better::higher});
  }
  table.columns.push_back({.title = "Mean", .unit = "%", .better = Better::higher});
  for (const std::string& method : data.methods()) {
    TableRow row{.cells = {text_cell(method)}, .role = role(data, method)};
    double total = 0;
    int64_t scored = 0;
    for (const std::string& workload : data.workloads()) {
      row.cells.push_back(quality_cell(data, method, workload));
      if (row.cells.back().kind == CellKind::number) {
        total += row.cells.back().value;
        ++scored;
      }
      const CellData* cell = data.find(method, workload, store::CellKind::quality);
      if (cell != nullptr && !row.badge) row.badge = badge(*cell);
    }
    const bool complete = scored == static_cast<int64_t>(data.workloads().size());
    row.cells.push_back(complete ? number_cell(total / static_cast<double>(scored)) : TableCell{});
    table.rows.push_back(std::move(row));
  }
  mark_best(table);
  return {.id = "quality", .title = "Quality by workload", .tables = {std::move(table)}};
}

/// Values of a metric over all workloads of a method, in order.
std::vector<double> all_values(const ExperimentData& data, const std::string& method, const std::string& metric,
                               store::CellKind kind) {
  std::vector<double> values;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = data.find(method, workload, kind);
    if (cell == nullptr || !cell->counts()) continue;
    const std::vector<double> more = finite(cell->numbers(metric));
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

/// A row a method, a column a metric; methods without any of the metrics are left out.
Table metric_table(const ExperimentData& data, Table table, const std::vector<MetricColumn>& columns,
                   store::CellKind kind) {
  table.columns = {{.title = "Method", .numeric = false}};
  for (const MetricColumn& column : columns) table.columns.push_back(column.column);
  for (const std::string& method : data.methods()) {
    TableRow row{.cells = {text_cell(method)}, .role = role(data, method)};
    bool any = false;
    for (const MetricColumn& column : columns) {
      const std::vector<double> values = all_values(data, method, column.metric, kind);
      if (values.empty()) {
        row.cells.emplace_back();
        continue;
      }
      any = true;
      const MeanEstimate estimate = bootstrap_mean(values, resampling_for(values.size()));
      std::optional<Interval> interval;
      if (values.size() > 1) {
        interval = Interval{column.scale * estimate.interval.low, column.scale * estimate.interval.high};
      }
      row.cells.push_back(number_cell(column.scale * estimate.mean, interval));
      row.cells.back().detail = fmt::format("{} samples", estimate.samples);
    }
    if (any) table.rows.push_back(std::move(row));
  }
  mark_best(table);
  return table;
}

constexpr NumberFormat kFixed1{.style = NumberStyle::fixed, .digits = 1};
constexpr NumberFormat kFixed2{.style = NumberStyle::fixed, .digits = 2};
constexpr NumberFormat kSignificant{.style = NumberStyle::significant, .digits = 3};
constexpr NumberFormat kBytes{.style = NumberStyle::bytes, .digits = 1};

Section distance_section(const ExperimentData& data) {
  const std::vector<MetricColumn> columns = {
      {"kl_nats", {.title = "KL a step", .unit = "nats", .better = Better::lower, .format = kSignificant}},
      {"kl_nats_sum", {.title = "KL a sequence", .unit = "nats", .better = Better::lower, .format = kSignificant}},
      {"top1_agreement",
       {.title = "Same next token", .unit = "%", .better = Better::higher, .format = kFixed1},
       kPercent},
      {"exact_match_full",
       {.title = "Same answer", .unit = "%", .better = Better::higher, .format = kFixed1},
       kPercent},
      {"first_divergence", {.title = "First divergence", .unit = "tokens", .format = kFixed1}}};
  Table table = metric_table(
      data,
      {.id = "distance",
       .title = "Distance from full KV",
       .caption =
           "KL(full || method), teacher-forced on the full-KV continuation, over the whole vocabulary. The full-KV "
           "row is a second full-KV run in another batch, against the first: the noise floor. First divergence is "
           "the mean over answers that differ."},
      columns, store::CellKind::quality);
  return {.id = "distance", .title = "Distance from full KV", .tables = {std::move(table)}, .charts = kl_charts(data)};
}

Section memory_section(const ExperimentData& data) {
  const std::vector<MetricColumn> columns = {
      {"resident_bytes", {.title = "Resident", .better = Better::lower, .format = kBytes}},
      {"kept_bytes_fraction",
       {.title = "Of full KV", .unit = "%", .better = Better::lower, .format = kFixed1},
       kPercent},
      {"compression_factor", {.title = "Factor", .format = {.style = NumberStyle::factor, .digits = 2}}}};
  Table table =
      metric_table(data,
                   {.id = "memory",
                    .title = "Resident bytes",
                    .caption = "Bytes allocated for the cache right after the prompt: entries, scales, positions, "
                               "indexes, and for verification methods both caches."},
                   columns, store::CellKind::quality);
  return {.id = "memory", .title = "Memory", .tables = {std::move(table)}, .charts = trade_off_charts(data)};
}

std::optional<Section> verification_section(const ExperimentData& data) {
  const std::vector<MetricColumn> columns = {
      {"acceptance_rate",
       {.title = "Accepted", .unit = "% of drafted", .better = Better::higher, .format = kFixed1},
       kPercent},
      {"acceptance_length",
       {.title = "Accepted a round", .unit = "tokens", .better = Better::higher, .format = kFixed2}},
      {"tokens_per_verify",
       {.title = "Emitted a round", .unit = "tokens", .better = Better::higher, .format = kFixed2}},
      {"exact_match_full",
       {.title = "Same answer as full KV", .unit = "%", .better = Better::higher, .format = kFixed1},
       kPercent}};
  Table table = metric_table(data,
                             {.id = "verification",
                              .title = "Draft and verify",
                              .caption = "Accepted tokens exclude the correction or bonus token of each round."},
                             columns, store::CellKind::quality);
  std::erase_if(table.rows, [](const TableRow& row) { return !row.cells[1].has_value(); });
  if (table.rows.empty()) return std::nullopt;
  return Section{.id = "verification", .title = "Verification", .tables = {std::move(table)}};
}

std::optional<Section> speed_section(const ExperimentData& data) {
  const std::vector<MetricColumn> columns = {
      {"time_to_first_token_ms",
       {.title = "Time to first token", .unit = "ms", .better = Better::lower, .format = kFixed1}},
      {"compress_ms", {.title = "of it compressing", .unit = "ms", .better = Better::lower, .format = kFixed1}},
      {"inter_token_latency_ms",
       {.title = "Inter-token latency", .unit = "ms", .better = Better::lower, .format = kFixed2}},
      {"throughput_tokens_per_s",
       {.title = "Throughput", .unit = "tokens/s", .better = Better::higher, .format = kFixed1}}};
  Table table =
      metric_table(data,
                   {.id = "speed",
                    .title = "Latency and throughput",
                    .caption = "Measured, one request alone with its own prefill; each sample is the median of "
                               "its repeats after warm-up, the table the mean over samples."},
                   columns, store::CellKind::timing);
  if (table.rows.empty()) return std::nullopt;
  return Section{.id = "speed", .title = "Speed", .tables = {std::move(table)}};
}

std::optional<Section> outcome_section(const ExperimentData& data) {
  Table table{.id = "outcomes",
              .title = "Cells without numbers",
              .caption = "Failures and methods that never acted are outcomes, not gaps.",
              .columns = {{.title = "Method", .numeric = false},
                          {.title = "Workload", .numeric = false},
                          {.title = "Kind", .numeric = false},
                          {.title = "Outcome", .numeric = false}}};
  for (const CellData& cell : data.cells) {
    const bool failed = cell.row.state == CellState::failed;
    if (!failed && cell.row.state != CellState::inactive) continue;
    table.rows.push_back({.cells = {text_cell(cell.row.cell.method), text_cell(cell.row.cell.workload),
                                    text_cell(std::string(store::name(cell.row.cell.kind))),
                                    failed ? failed_cell(cell.row.reason) : inactive_cell("never acted")}});
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{.id = "outcomes", .title = "Failed and inactive", .tables = {std::move(table)}};
}

/// Fills the cells "reproduced", "difference" and "finding" of a row of published values.
void reproduce(const ExperimentData& data, const store::PublishedValue& published, std::vector<TableCell>& cells) {
  const CellData* cell = data.find(published.method, published.workload, store::CellKind::quality);
  if (cell == nullptr) cell = data.find(published.method, published.workload, store::CellKind::timing);
  const std::vector<double> values = cell == nullptr ? std::vector<double>() : finite(cell->numbers(published.metric));
  if (cell == nullptr || !cell->counts() || values.empty()) {
    cells[4] = cell == nullptr ? TableCell{} : state_cell(cell).value_or(TableCell{});
    cells[6] = text_cell("not comparable: no value here");
    return;
  }
  // Scores are stored in [0, 1]; papers print percent.
  const double scale = published.unit == "percent" || published.unit == "%" ? kPercent : 1;
  const MeanEstimate ours = bootstrap_mean(values, resampling_for(values.size()));
  const Interval interval{scale * ours.interval.low, scale * ours.interval.high};
  cells[4] = number_cell(scale * ours.mean, values.size() > 1 ? std::optional(interval) : std::nullopt);
  cells[4].detail = fmt::format("{} samples", ours.samples);
  cells[5] = number_cell(scale * ours.mean - published.value);
  cells[5].is_signed = true;
  const bool match = format_number(scale * ours.mean, kFixed1) == format_number(published.value, kFixed1);
  const bool inside = values.size() > 1 && interval.low <= published.value && published.value <= interval.high;
  cells[6] = text_cell(match ? "match" : inside ? "within interval" : "differs");
}

/// Printed values beside ours; nothing when the experiment has none for this model.
std::optional<Section> published_section(const ExperimentData& data) {
  Table table{.id = "published",
              .title = "Published and reproduced",
              .caption =
                  "Difference is reproduced minus published. A published value inside the 95% interval of ours "
                  "is marked so; what has no cell here says why.",
              .columns = {{.title = "Method", .numeric = false},
                          {.title = "Workload", .numeric = false},
                          {.title = "Metric", .numeric = false},
                          {.title = "Published", .format = kFixed1},
                          {.title = "Reproduced", .format = kFixed1},
                          {.title = "Difference", .format = kFixed1},
                          {.title = "Finding", .numeric = false},
                          {.title = "Source", .numeric = false}}};
  for (const store::PublishedValue& value : data.experiment.published) {
    if (data.cells.empty() || value.model != data.cells.front().row.cell.model) continue;
    table.rows.push_back({.cells = {text_cell(value.method),
                                    text_cell(value.workload),
                                    text_cell(value.metric),
                                    number_cell(value.value),
                                    {},
                                    {},
                                    {},
                                    text_cell(value.source)}});
    reproduce(data, value, table.rows.back().cells);
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{.id = "published", .title = "Published and reproduced", .tables = {std::move(table)}};
}

/// The entries in which two cards differ: "dtype: bf16 / f32".
std::string card_differences(const CellData& a, const CellData& b) {
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [key, value] : a.card) both[key].first = value;
  for (const auto& [key, value] : b.card) both[key].second = value;
  std::string text;
  for (const auto& [key, values] : both) {
    if (values.first == values.second) continue;
    text += fmt::format("{}{}: {} / {}", text.empty() ? "" : "; ", key, values.first, values.second);
  }
  return text;
}

/// Sentences on rows whose cards differ from the first row of the same workload and kind.
std::vector<std::string> unlike_cards(const ExperimentData& data) {
  std::map<std::tuple<std::string, std::string, store::CellKind>, const CellData*> first;
  std::vector<std::string> sentences;
  for (const CellData& cell : data.cells) {
    const auto [it, is_new] =
        first.try_emplace({cell.row.cell.model, cell.row.cell.workload, cell.row.cell.kind}, &cell);
    if (is_new || it->second->row.cell.protocol_sha256 == cell.row.cell.protocol_sha256) continue;
    sentences.push_back(fmt::format("{}: {} and {} differ in {}", cell.row.cell.workload, it->second->row.cell.method,
                                    cell.row.cell.method, card_differences(*it->second, cell)));
  }
  return sentences;
}

/// Everything that is said of one model.
std::vector<Section> model_sections(const ExperimentData& data) {
  std::vector<Section> sections = {quality_section(data)};
  if (auto published = published_section(data)) sections.push_back(std::move(*published));
  sections.push_back(distance_section(data));
  sections.push_back(memory_section(data));
  for (auto& section : {verification_section(data), speed_section(data), outcome_section(data)}) {
    if (section) sections.push_back(*section);
  }
  return sections;
}

/// Ids and titles that stay apart when several models are in one report.
void name_after(Section& section, const std::string& model) {
  section.id += "-" + slug(model);
  section.title += " · " + model;
  for (Table& table : section.tables) table.id += "-" + slug(model);
  for (Chart& chart : section.charts) chart.id += "-" + slug(model);
}

std::vector<std::string> introduction(const ExperimentData& data) {
  int64_t samples = 0;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = data.find(data.methods().front(), workload, store::CellKind::quality);
    if (cell != nullptr) samples += cell->row.done_samples;
  }
  const std::string model = fmt::format("{}", fmt::join(data.models(), ", "));
  return {
      fmt::format("{} settings of KV-cache methods on {}, {} samples over {}. All methods start from the same full "
                  "prefill, decode through the same kernels, and are paired sample by sample with {}.",
                  data.methods().size(), model, samples, fmt::join(data.workloads(), ", "), data.baseline()),
      "Limits: intervals are over samples of one seed and one model; differences inside them are noise, and results "
      "on a small model and short prompts need not carry over to large ones."};
}

std::vector<std::pair<std::string, std::string>> provenance(const ExperimentData& data) {
  std::vector<std::pair<std::string, std::string>> list;
  if (data.runs.empty()) return list;
  const store::RunRecord& run = data.runs.back();
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
  for (const store::RunInput& input : data.inputs) list.emplace_back(input.kind + " " + input.name, input.sha256);
  return list;
}

}  // namespace

ResamplingOptions resampling_for(size_t values) {
  constexpr int64_t kDraws = 2'000'000;
  const int64_t each = kDraws / std::max<int64_t>(1, static_cast<int64_t>(values));
  return {.resamples = std::clamp<int64_t>(each, 400, 10'000)};
}

std::string primary_metric(const ExperimentData& data, const std::string& workload) {
  for (const CellData& cell : data.cells) {
    if (cell.row.cell.workload != workload) continue;
    for (const auto& [key, value] : cell.card) {
      if (key == "metrics") return value.substr(0, value.find(' '));
    }
  }
  return {};
}

std::optional<Difference> paired_verdict(const CellData& method, const CellData& baseline, const std::string& metric,
                                         Better better, double scale) {
  const auto ours = method.values.find(metric);
  const auto theirs = baseline.values.find(metric);
  if (ours == method.values.end() || theirs == baseline.values.end()) return std::nullopt;
  std::map<std::string, double> by_sample;
  for (const store::ValueRow& value : theirs->second) by_sample[value.sample_id] = value.value;
  std::vector<double> a;
  std::vector<double> b;
  for (const store::ValueRow& value : ours->second) {
    const auto it = by_sample.find(value.sample_id);
    if (it == by_sample.end() || !std::isfinite(value.value) || !std::isfinite(it->second)) continue;
    a.push_back(value.value);
    b.push_back(it->second);
  }
  if (a.empty()) return std::nullopt;
  const PairedDifference paired = paired_difference(a, b, resampling_for(a.size()));
  // The bootstrap of a few equal differences has no width; the permutation test knows how little they prove.
  constexpr double kLevel = 0.05;
  const bool noise = (paired.interval.low <= 0 && paired.interval.high >= 0) || paired.p_value >= kLevel;
  const bool good = (paired.difference > 0) == (better != Better::lower);
  return Difference{.value = scale * paired.difference,
                    .interval = {scale * paired.interval.low, scale * paired.interval.high},
                    .verdict = noise  ? Verdict::within_noise
                               : good ? Verdict::better
                                      : Verdict::worse};
}

Document experiment_report(const ExperimentData& data, const ReportOptions& options) {
  const std::vector<std::string> unlike = unlike_cards(data);
  if (!unlike.empty() && !options.allow_unlike_cards) {
    fail({.place = data.experiment.experiment,
          .found = fmt::format("rows with different protocol cards ({})", fmt::join(unlike, " | ")),
          .expected = "rows that may be compared",
          .action = "--allow-unlike-cards compares them all the same and says how they differ"});
  }
  Document document{.title = data.experiment.title.empty() ? data.experiment.experiment : data.experiment.title,
                    .introduction = introduction(data),
                    .provenance = provenance(data)};
  for (const std::string& sentence : unlike) document.introduction.push_back("Not like for like. " + sentence);
  const std::vector<std::string> models = data.models();
  for (const std::string& model : models) {
    for (Section& section : model_sections(data.of_model(model))) {
      if (models.size() > 1) name_after(section, model);
      document.sections.push_back(std::move(section));
    }
  }
  return document;
}

}  // namespace kvarena::reports
