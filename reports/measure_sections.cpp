// Sections with a row a method and a column a metric.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "reports/byte_classes.h"
#include "reports/escape.h"
#include "reports/grouped_rows.h"
#include "reports/pooled.h"
#include "reports/report_charts.h"
#include "reports/sections.h"
#include "reports/settings_charts.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

using results::CellState;

constexpr NumberFormat kFixed1{.style = NumberStyle::fixed, .digits = 1};
constexpr NumberFormat kFixed2{.style = NumberStyle::fixed, .digits = 2};
constexpr NumberFormat kFixed4{.style = NumberStyle::fixed, .digits = 4};
constexpr NumberFormat kSignificant{.style = NumberStyle::significant, .digits = 3};
constexpr NumberFormat kFactor{.style = NumberStyle::factor, .digits = 2};

/// One row: the cells of a method and kind over all workloads.
struct RowOf {
  std::string label;
  std::string method;
  results::CellKind kind = results::CellKind::quality;
  RowRole role = RowRole::ordinary;
};

/// Every method; after the baseline its second run.
std::vector<RowOf> quality_rows(const ExperimentData& data) {
  std::vector<RowOf> rows;
  for (const std::string& method : data.methods()) {
    const bool baseline = method == data.baseline();
    rows.push_back({.label = method, .method = method, .role = baseline ? RowRole::baseline : RowRole::ordinary});
    if (!baseline) continue;
    rows.push_back({.label = method + ", again",
                    .method = method,
                    .kind = results::CellKind::noise_floor,
                    .role = RowRole::noise_floor});
  }
  return rows;
}

/// Every method's timing.
std::vector<RowOf> timing_rows(const ExperimentData& data) {
  std::vector<RowOf> rows = quality_rows(data);
  std::erase_if(rows, [](const RowOf& row) { return row.kind != results::CellKind::quality; });
  for (RowOf& row : rows) row.kind = results::CellKind::timing;
  return rows;
}

/// Samples over all workloads that a row's numbers come from.
int64_t samples_of(const ExperimentData& data, const RowOf& row) {
  int64_t samples = 0;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = data.find(row.method, workload, row.kind);
    if (cell != nullptr && cell->counts()) samples += cell->row.done_samples;
  }
  return samples;
}

/// Marks the label of a method that was asked other samples than the baseline.
void mark_samples(const ExperimentData& data, const RowOf& of, TableCell& label, Table& table) {
  if (of.role != RowRole::ordinary || of.kind != results::CellKind::quality) return;
  const int64_t ours = samples_of(data, of), most = samples_of(data, {.method = data.baseline()});
  if (ours == most || most == 0) return;
  label.notes.push_back(footnote(table, fmt::format("Over {} samples where {} has {}.", ours, data.baseline(), most)));
}

/// Rows without any of the metrics are left out.
Table metric_table(const ExperimentData& data, Table table, const std::vector<MetricColumn>& columns,
                   const std::vector<RowOf>& rows) {
  table.columns = {{.title = "Method", .numeric = false}};
  const std::vector<MetricLook> looks = add_metric_columns(data, columns, table);
  const std::map<std::string, int> classes = byte_classes(data);
  for (const RowOf& of : rows) {
    const auto peers = classes.find(of.method);
    TableRow row{.cells = {text_cell(of.label)}, .role = of.role, .peers = peers == classes.end() ? -1 : peers->second};
    bool any = false;
    for (size_t at = 0; at < columns.size(); ++at) {
      const std::string name = columns[at].modelled ? modelled(columns[at].metric.name) : columns[at].metric.name;
      row.cells.push_back(mean_of_pool(pool_of(data, of.method, of.kind, name), looks[at]));
      any = any || row.cells.back().has_value();
    }
    if (!any) continue;
    mark_samples(data, of, row.cells.front(), table);
    table.rows.push_back(std::move(row));
  }
  mark_best(table);
  return table;
}

Table metric_table(const ExperimentData& data, Table table, const std::vector<MetricColumn>& columns) {
  return metric_table(data, std::move(table), columns, quality_rows(data));
}

/// Says by which of its terms a method's rate differs from the baseline's: tokens a pass, time of a pass.
void explain_rates(const std::string& baseline, size_t rate, size_t tokens, size_t time, Table& table) {
  const auto base = std::ranges::find(table.rows, RowRole::baseline, &TableRow::role);
  if (base == table.rows.end()) return;
  for (TableRow& row : table.rows) {
    const bool known = std::ranges::all_of(std::array{rate, tokens, time}, [&](size_t column) {
      return row.cells[column].has_value() && base->cells[column].value > 0;
    });
    if (row.role == RowRole::baseline || !known) continue;
    const auto ratio = [&](size_t column) { return row.cells[column].value / base->cells[column].value; };
    row.cells[rate].notes.push_back(footnote(
        table, fmt::format("{:.2f}× the rate of {}: a pass gives {:.2f}× the tokens and takes {:.2f}× the time.",
                           ratio(rate), baseline, ratio(tokens), ratio(time))));
  }
}

/// Removes columns from number `first` on that have no value in any row.
void drop_empty(Table& table, size_t first) {
  for (size_t column = table.columns.size(); column-- > first;) {
    const auto has_value = [&](const TableRow& row) { return row.cells[column].has_value(); };
    if (std::ranges::any_of(table.rows, has_value)) continue;
    table.columns.erase(table.columns.begin() + static_cast<ptrdiff_t>(column));
    for (TableRow& row : table.rows) row.cells.erase(row.cells.begin() + static_cast<ptrdiff_t>(column));
  }
}

/// Equal requests in limited device memory.
Table runtime_table(const ExperimentData& data) {
  Table table = metric_table(
      data,
      {.id = "verification-runtime",
       .title = "In limited device memory",
       .caption = "Equal requests that share the device's memory for caches; their rate is tokens a pass over its "
                  "time. Where full caches lie behind the device: "
                  "at what rate their link brings them (measured before the run unless emulated), how much of the time "
                  "it was occupied, how much went by in passes that verify, how often a verification had to wait for "
                  "its cache, how many full caches found room to stay, and how many requests drafted no more, since "
                  "full KV gives more tokens by the bytes that it reads or the time that it takes."},
      {{metrics::kConcurrentRequests, kFixed1},
       {metrics::kThroughputTokensPerS, kFixed1},
       {metrics::kTokensPerPass, kFixed2, "Tokens a pass"},
       {metrics::kMeanPassMs, kFixed1, "A pass"},
       {metrics::kLinkRate, kFixed1},
       {metrics::kLinkUtilisation},
       {metrics::kVerifyShare},
       {metrics::kLateVerifies, kFixed1, "Verifications that waited"},
       {metrics::kFullCachesKept, kFixed1, "Full caches that stayed"},
       {metrics::kFallenBack, kFixed1, "Back to full KV"}},
      timing_rows(data));
  explain_rates(data.baseline(), /*rate=*/2, /*tokens=*/3, /*time=*/4, table);
  drop_empty(table, /*first=*/5);
  return table;
}

/// The section of one table; none where the table has no rows.
std::optional<Section> unless_empty(Section section) {
  if (section.tables.front().rows.empty()) return std::nullopt;
  return section;
}

/// A server does not tell whether its setting acted.
const char* why_inactive(const results::CellRecord& cell) {
  const bool served = nlohmann::json::parse(cell.model_json).contains("endpoint");
  return served ? "no digit of answers or log-probabilities differs from the baseline's"
                : "the method never acted on these samples";
}

}  // namespace

std::optional<TableCell> state_cell(const CellData* cell) {
  if (cell == nullptr) return TableCell{};
  if (cell->row.state == CellState::failed) return failed_cell(cell->row.reason);
  if (cell->row.state == CellState::missing) return missing_cell(cell->row.reason);
  if (cell->row.state == CellState::inactive) return inactive_cell(why_inactive(cell->row.cell));
  return std::nullopt;
}

void mark_origin(TableCell& cell, const results::ValueColumn& values) {
  cell.simulated = cell.simulated || values.storage == results::Storage::simulated;
  cell.emulated = cell.emulated || values.storage == results::Storage::emulated;
  cell.modelled = cell.modelled || values.clock == results::Clock::modelled;
}

std::optional<Section> server_section(const ExperimentData& data) {
  Table table = metric_table(
      data,
      {.id = "server",
       .title = "Behind an endpoint",
       .caption =
           "Along the baseline's answer: by how much less likely its tokens are, and KL over the likeliest tokens "
           "that the server names for both, the rest lumped, which is a lower bound of the KL over a vocabulary. "
           "Of a request: tries that were repeated, prompt tokens that the server took from its prefix cache, and "
           "that it counts beyond those sent."},
      {{metrics::kLogprobDifference, kSignificant},
       {metrics::kKlTopk, kSignificant},
       {metrics::kRepeatedRequests, kFixed1, "Repeated"},
       {metrics::kPrefixCachedTokens, kFixed1, "From its cache"},
       {metrics::kUsageDifference, kFixed1, "Counted beyond"}});
  return unless_empty({.id = "server", .title = "Behind an endpoint", .tables = {std::move(table)}});
}

std::optional<Section> distance_section(const ExperimentData& data) {
  Table table = metric_table(
      data,
      {.id = "distance",
       .title = "Distance from full KV",
       .caption =
           "KL(full || method), teacher-forced on the full-KV continuation, over the whole vocabulary. \"Again\" is "
           "full KV a second time, with its own prefill in other chunks and in a batch with another request: the "
           "noise floor, measured. First divergence is the mean over answers that differ."},
      {{metrics::kKlNats, kSignificant},
       {metrics::kKlNatsSum, kSignificant},
       {metrics::kTop1Agreement, {}, "Same next token"},
       {metrics::kExactMatchFull, {}, "Same answer"},
       {metrics::kFirstDivergence, kFixed1, "First divergence"}});
  return unless_empty(
      {.id = "distance", .title = "Distance from full KV", .tables = {std::move(table)}, .charts = kl_charts(data)});
}

std::optional<Section> draws_section(const ExperimentData& data) {
  Table table = metric_table(
      data,
      {.id = "draws",
       .title = "Answers drawn several times",
       .caption = "Tables of scores have the mean over a sample's draws (avg@k), and intervals over samples. Here: "
                  "samples with a score of 1 in some of the k draws that the protocol tells (pass@k)."},
      {{kPassAtK, {}, "pass@k"}});
  std::erase_if(table.rows, [](const TableRow& row) { return !row.cells[1].has_value(); });
  return unless_empty({.id = "draws", .title = "Draws", .tables = {std::move(table)}});
}

std::optional<Section> memory_section(const ExperimentData& data) {
  Table table = metric_table(
      data,
      {.id = "memory",
       .title = "Resident bytes",
       .caption = "Bytes allocated for the cache after the prompt: entries, scales, positions, indexes, what a step "
                  "brings from behind the device, and for verification methods both caches. Packed: bits for each "
                  "number that a codec holds, its scales and tables included. Sliding, recurrent: what layers with a "
                  "sliding window and recurrent states hold of them. Numbers without a mark are of real allocations; "
                  "sim: a codec without a packed form; emu: a tier or link that was not there."},
      {{metrics::kResidentBytes, {}, "Resident"},
       {metrics::kKeptBytesFraction, {}, "Of full KV"},
       {metrics::kCompressionFactor, kFactor, "Factor"},
       {metrics::kBitsPerNumber, kFixed2, "Packed"},
       {metrics::kSlidingBytes, {}, "Sliding"},
       {metrics::kStateBytes, {}, "Recurrent"}});
  constexpr size_t kOfSomeModels = 5;  // columns from this one on
  drop_empty(table, kOfSomeModels);
  std::erase_if(table.rows, [](const TableRow& row) { return row.role == RowRole::noise_floor; });
  for (TableRow& row : table.rows) {
    for (TableCell& cell : row.cells) cell.best = false;  // bytes are what makes rows peers
  }
  return unless_empty({.id = "memory", .title = "Memory", .tables = {std::move(table)}});
}

std::optional<Section> selection_section(const ExperimentData& data) {
  Table table = metric_table(
      data,
      {.id = "selection",
       .title = "What a step attends to",
       .caption =
           "Hit rate: share of exact attention, over every entry so far, that falls on the entries attended; mean "
           "over steps, layers and query heads, along the full-KV continuation. Attended: of all entries so far, those "
           "that a step reads. Selected again: of a kv head's "
           "selected entries, the share that was selected a step before. Loaded: keys and values of the others, "
           "what a cache on a slower tier would have to send."},
      {{metrics::kAttentionHitRate, {}, "Hit rate"},
       {metrics::kAttendedShare, {}, "Attended"},
       {metrics::kSelectionOverlap},
       {metrics::kLoadedBytes}});
  Table prompt = metric_table(
      data,
      {.id = "prompt-attention",
       .title = "What a sparse prefill attends to",
       .caption = "Computed: of all pairs of a query of the prompt and a key up to its own, those that the method "
                  "computes. Kept: share of dense attention that falls on these; means over rows, query heads and "
                  "layers. Times to the first token are in the table of speed."},
      {{metrics::kPromptAttentionComputed, {}, "Computed"}, {metrics::kPromptAttentionKept, {}, "Kept"}});
  Section section{.id = "selection", .title = "Selection"};
  for (Table* one : {&table, &prompt}) {
    std::erase_if(one->rows, [](const TableRow& row) { return !row.cells[1].has_value(); });
    if (!one->rows.empty()) section.tables.push_back(std::move(*one));
  }
  if (section.tables.empty()) return std::nullopt;
  return section;
}

std::optional<Section> link_section(const ExperimentData& data) {
  Table table = metric_table(
      data,
      {.id = "links",
       .title = "What a pass brings from behind the device",
       .caption =
           "Bytes that came over the link, how long they occupied it, and how long the pass waited for them; what "
           "was not waited for was hidden behind computing. emu: the link takes the time that its description "
           "says."},
      {{metrics::kLinkBytes},
       {metrics::kLinkMs, kFixed2, "Link occupied"},
       {metrics::kStallMs, kFixed2, "Waited"},
       {metrics::kPrefetchOverlap, {}, "Hidden"}});
  return unless_empty({.id = "links", .title = "Links", .tables = {std::move(table)}, .charts = tier_charts(data)});
}

void name_after_length(Table& table, const std::string& length) {
  if (length.empty()) return;
  table.id += fmt::format("-{}", slug(length));
  table.title += fmt::format(", {}", length);
}

std::optional<Section> verification_section(const ExperimentData& data) {
  Table table = metric_table(data,
                             {.id = "verification",
                              .title = "Draft and verify",
                              .caption = "Accepted tokens exclude the correction or bonus token of each round."},
                             {{metrics::kAcceptanceRate},
                              {metrics::kAcceptanceLength, kFixed2},
                              {metrics::kTokensPerVerify, kFixed2},
                              {metrics::kExactMatchFull}});
  Section section{.id = "verification", .title = "Verification"};
  const auto add = [&](Table one, const std::string& length) {
    std::erase_if(one.rows, [](const TableRow& row) { return !row.cells[1].has_value(); });
    if (one.rows.empty()) return;
    name_after_length(one, length);
    section.tables.push_back(std::move(one));
  };
  add(std::move(table), "");
  data.for_request_lengths(
      [&](const std::string& length, const ExperimentData& part) { add(runtime_table(part), length); });
  if (section.tables.empty()) return std::nullopt;
  section.charts = drafting_charts(data);
  return section;
}

std::optional<Section> remote_prefix_section(const ExperimentData& data) {
  Table table = metric_table(
      data,
      {.id = "remote-prefix",
       .title = "Prompts whose caches lie behind links",
       .caption = "On average over the requests, from their arrival. First token: verified, where anything verifies. "
                  "Bytes over the links to the local pool (fast) and to the remote one (slow); hidden: of the time in "
                  "which a cache was on its way, the share in which passes ran. Expected: the linear programme over "
                  "paths, fed with what this machine was measured to take for a pass. One device computes for both "
                  "pools; emu: links take the time that their rates say."},
      {{metrics::kFirstDraftMs, kFixed1, "First draft"},
       {metrics::kTimeToFirstTokenMs, kFixed1, "First token"},
       {metrics::kInterTokenLatencyMs, kFixed1, "Between tokens"},
       {metrics::kEndToEndMs, kFixed1},
       {metrics::kThroughputTokensPerS, kFixed1},
       {metrics::kPlannedTokensPerS, kFixed1, "Expected", "", true},
       {metrics::kFastLinkBytes, {}, "Fast link"},
       {metrics::kSlowLinkBytes, {}, "Slow link"},
       {metrics::kSlowLinkUtilisation},
       {metrics::kTransferHidden, {}, "Hidden"},
       {metrics::kAcceptanceRate, {}, "Accepted"},
       {metrics::kExactMatchFull, {}, "Full KV's tokens"}},
      timing_rows(data));
  std::erase_if(table.rows, [](const TableRow& row) { return !row.cells[8].has_value(); });
  return unless_empty({.id = "remote-prefix", .title = "Remote prefix caching", .tables = {std::move(table)}});
}

std::optional<Section> reuse_section(const ExperimentData& data) {
  Table quality = metric_table(data,
                               {.id = "reuse",
                                .title = "Reuse of entries",
                                .caption = "Computed anew: share of tokens and layers, the question included. "
                                           "Deviation: mean cosine distance of keys and values to those of full KV."},
                               {{metrics::kRecomputeShare},
                                {metrics::kRecomputedTokens, kFixed1, "Context tokens"},
                                {metrics::kKvDeviation, kFixed4, "Deviation"},
                                {metrics::kKlNats, kFixed4, "KL to full KV"}});
  std::erase_if(quality.rows, [](const TableRow& row) { return !row.cells[1].has_value(); });
  if (quality.rows.empty()) return std::nullopt;
  Section section{.id = "reuse", .title = "Reuse", .tables = {std::move(quality)}};
  Table overlap = metric_table(
      data,
      {.id = "token-overlap",
       .title = "Which tokens are called important",
       .caption =
           "Jaccard similarity of two choices of a fifth of a prompt's tokens by the norms of hidden states: the "
           "speculative model's deep layers and the target's, and the target's first layer and its deep ones."},
      {{metrics::kTokenOverlap, kFixed4, "Speculative and target"},
       {metrics::kShallowDeepOverlap, kFixed4, "First and deep"}});
  std::erase_if(overlap.rows,
                [](const TableRow& row) { return !row.cells[1].has_value() && !row.cells[2].has_value(); });
  if (!overlap.rows.empty()) section.tables.push_back(std::move(overlap));
  for (const LayerSeries& series : {LayerSeries{.series = metrics::kKvDeviation,
                                   .id = "kv-deviation",
                                   .title = "Deviation of reused entries by layer",
                                   .axis = "mean cosine distance to full KV"},
                                    LayerSeries{.series = metrics::kFirstLayerOverlap,
                                    .id = "first-layer-overlap",
                                    .title = "Important tokens of the first layer and of each layer",
                                    .axis = "Jaccard similarity"}}) {
    if (auto chart = layer_chart(data, series)) section.charts.push_back(std::move(*chart));
  }
  return section;
}

std::optional<Section> outcome_section(const ExperimentData& data) {
  Table table{.id = "outcomes",
              .title = "Cells without numbers",
              .caption =
                  "Failures, methods that never acted and methods whose weights are missing are outcomes, not "
                  "gaps.",
              .columns = {{.title = "Method", .numeric = false},
                          {.title = "Workload", .numeric = false},
                          {.title = "Kind", .numeric = false},
                          {.title = "Outcome", .numeric = false}}};
  for (const CellData& cell : data.cells) {
    if (const auto outcome = state_cell(&cell)) {
      table.rows.push_back({.cells = {text_cell(cell.row.cell.method), text_cell(cell.row.cell.workload),
                                      text_cell(std::string(results::name(cell.row.cell.kind))), *outcome}});
    }
  }
  return unless_empty({.id = "outcomes", .title = "Failed, inactive and missing", .tables = {std::move(table)}});
}

}  // namespace kvarena::reports
