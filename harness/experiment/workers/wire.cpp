#include "harness/experiment/workers/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena::experiment {
namespace {

using experiment::ComponentEntry;
using experiment::ExperimentConfig;
using experiment::ModelEntry;
using experiment::PlannedCell;
using experiment::SampleOutcome;
using nlohmann::json;

template <typename Entry>
const Entry& labelled(const std::vector<Entry>& entries, const std::string& label, const char* what) {
  const auto entry = std::ranges::find_if(entries, [&](const Entry& each) { return each.label == label; });
  if (entry != entries.end()) return *entry;
  fail({.place = "worker",
        .found = fmt::format("no {} \"{}\" in its config", what, label),
        .expected = "the runner's config"});
}

template <typename Enum, size_t N>
Enum named(const std::string& name, const std::array<Enum, N>& all) {
  for (const Enum value : all) {
    if (results::name(value) == name) return value;
  }
  fail({.place = "worker", .found = fmt::format("the word \"{}\"", name), .expected = "one that both sides know"});
}

results::CellKind kind_named(const std::string& name) {
  using enum results::CellKind;
  return named(name, std::array{quality, timing, noise_floor, serving});
}
results::Clock clock_named(const std::string& name) {
  using enum results::Clock;
  return named(name, std::array{none, measured, modelled});
}
results::Storage storage_named(const std::string& name) {
  using enum results::Storage;
  return named(name, std::array{real, emulated, simulated});
}

/// A number that no int64_t holds is no count.
int64_t count_of(const json& value) {
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (!fits)
    throw json::type_error::create(302, "type must be a count, but is " + std::string(value.type_name()), &value);
  return value.get<int64_t>();
}

json cell_json(const PlannedCell& cell) {
  const results::CellRecord& record = cell.record;
  return {{"cell_id", record.cell_id},
          {"experiment", record.experiment},
          {"model_json", record.model_json},
          {"workload_json", record.workload_json},
          {"method", record.method},
          {"settings_json", record.settings_json},
          {"engine_json", record.engine_json},
          {"protocol_json", record.protocol_json},
          {"protocol_sha256", record.protocol_sha256},
          {"position", record.position},
          {"planned_samples", record.planned_samples}};
}

PlannedCell read_cell(const json& value, const ReceivedTask& task, const ExperimentConfig& config) {
  const ComponentEntry& method = labelled(config.methods, value.at("method").get<std::string>(), "method");
  PlannedCell cell{.record = {}, .model = task.model, .workload = task.workload, .method = &method};
  results::CellRecord& record = cell.record;
  value.at("cell_id").get_to(record.cell_id);
  value.at("experiment").get_to(record.experiment);
  record.kind = task.kind;
  record.model = task.model->label;
  value.at("model_json").get_to(record.model_json);
  record.workload = task.workload->label;
  value.at("workload_json").get_to(record.workload_json);
  record.method = method.label;
  record.method_name = method.name;
  value.at("settings_json").get_to(record.settings_json);
  value.at("engine_json").get_to(record.engine_json);
  value.at("protocol_json").get_to(record.protocol_json);
  value.at("protocol_sha256").get_to(record.protocol_sha256);
  record.baseline = method.baseline;
  record.position = count_of(value.at("position"));
  record.planned_samples = count_of(value.at("planned_samples"));
  return cell;
}

json value_json(const results::MetricValue& value) {
  return {{"metric", value.metric},
          {"value", value.value},
          {"unit", value.unit},
          {"clock", results::name(value.clock)},
          {"storage", results::name(value.storage)}};
}

results::MetricValue read_value(const json& value) {
  return {.metric = value.at("metric"),
          .value = value.at("value"),
          .unit = value.at("unit"),
          .clock = clock_named(value.at("clock")),
          .storage = storage_named(value.at("storage"))};
}

json series_json(const results::Series& series) {
  return {{"name", series.name},
          {"values", series.values},
          {"unit", series.unit},
          {"clock", results::name(series.clock)},
          {"storage", results::name(series.storage)}};
}

results::Series read_series(const json& value) {
  return {.name = value.at("name"),
          .values = value.at("values"),
          .unit = value.at("unit"),
          .clock = clock_named(value.at("clock")),
          .storage = storage_named(value.at("storage"))};
}

json event_json(const results::Event& event) {
  return {{"event", event.event}, {"at_ms", event.at_ms ? json(*event.at_ms) : json()}, {"data", event.data_json}};
}

results::Event read_event(const json& value) {
  results::Event event{.event = value.at("event"), .at_ms = std::nullopt, .data_json = value.at("data")};
  if (!value.at("at_ms").is_null()) event.at_ms = value.at("at_ms").get<double>();
  return event;
}

template <typename Item>
json list_json(const std::vector<Item>& items, json (*make)(const Item&)) {
  json list = json::array();
  for (const Item& item : items) list.push_back(make(item));
  return list;
}

template <typename Item>
std::vector<Item> read_list(const json& list, Item (*read)(const json&)) {
  std::vector<Item> items;
  for (const json& item : list) items.push_back(read(item));
  return items;
}

}  // namespace

const ModelEntry& model_labelled(const std::string& label, const ExperimentConfig& config) {
  return labelled(config.models, label, "model");
}

json task_json(const experiment::EvalTask& task) {
  json list = json::array();
  for (const PlannedCell* cell : task.cells) list.push_back(cell_json(*cell));
  return {{"model", task.model.label},
          {"workload", task.workload.label},
          {"kind", results::name(task.kind)},
          {"sample_id", task.sample_id},
          {"sample_index", task.sample_index},
          {"cells", std::move(list)},
          {"next", std::vector<int64_t>(task.next.begin(), task.next.end())}};
}

ReceivedTask read_task(const json& task, const ExperimentConfig& config) {
  ReceivedTask received;
  received.model = &model_labelled(task.at("model"), config);
  received.workload = &labelled(config.workloads, task.at("workload").get<std::string>(), "workload");
  received.kind = kind_named(task.at("kind"));
  task.at("sample_id").get_to(received.sample_id);
  received.sample_index = count_of(task.at("sample_index"));
  for (const json& index : task.at("next")) received.next.push_back(count_of(index));
  for (const json& cell : task.at("cells")) received.cells.push_back(read_cell(cell, received, config));
  return received;
}

json outcome_json(const SampleOutcome& outcome) {
  if (!outcome.failure.empty()) return {{"failure", outcome.failure}};
  const results::SampleResult& result = outcome.result;
  return {{"prompt_sha256", result.prompt_sha256},
          {"context", result.context},
          {"prompt_tokens", result.prompt_tokens},
          {"truncated_tokens", result.truncated_tokens},
          {"output_tokens", result.output_tokens},
          {"prediction", result.prediction},
          {"references", result.references_json},
          {"finish_reason", result.finish_reason},
          {"active", result.active},
          {"activity", result.activity_json},
          {"wall_s", result.wall_s},
          {"values", list_json(result.values, value_json)},
          {"series", list_json(result.series, series_json)},
          {"events", list_json(result.events, event_json)},
          {"peak_bytes", result.peak_bytes}};
}

SampleOutcome read_outcome(const json& value) {
  SampleOutcome outcome;
  if (value.contains("failure")) {
    value.at("failure").get_to(outcome.failure);
    return outcome;
  }
  results::SampleResult& result = outcome.result;
  value.at("prompt_sha256").get_to(result.prompt_sha256);
  result.prompt_tokens = count_of(value.at("prompt_tokens"));
  result.truncated_tokens = count_of(value.at("truncated_tokens"));
  result.output_tokens = count_of(value.at("output_tokens"));
  value.at("context").get_to(result.context);
  value.at("prediction").get_to(result.prediction);
  value.at("references").get_to(result.references_json);
  value.at("finish_reason").get_to(result.finish_reason);
  value.at("active").get_to(result.active);
  value.at("activity").get_to(result.activity_json);
  value.at("wall_s").get_to(result.wall_s);
  result.values = read_list(value.at("values"), read_value);
  result.series = read_list(value.at("series"), read_series);
  result.events = read_list(value.at("events"), read_event);
  for (const auto& [tier, bytes] : value.at("peak_bytes").items()) result.peak_bytes[tier] = count_of(bytes);
  return outcome;
}

}  // namespace kvarena::experiment
