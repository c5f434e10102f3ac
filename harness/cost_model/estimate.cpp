#include "harness/cost_model/estimate.h"

#include <algorithm>
#include <cmath>

#include "harness/core/json_text.h"

namespace kvarena::cost_model {

using nlohmann::json;

namespace {

json figure_json(const Figure& figure) { return {{"value", figure.value}, {"source", figure.source}}; }

template <typename Part>
json values_json(Part part) {
  return parameter_values([&](ParameterVisitor& p) { part.parameters(p); });
}

}  // namespace

std::vector<EstimateRow> estimate_rows(const Hardware& hardware, const ModelShape& shape,
                                       const std::vector<EstimateCase>& cases, std::optional<int64_t> batch) {
  std::vector<EstimateRow> rows;
  for (const EstimateCase& of : cases) {
    const auto full = estimate_run(hardware, shape, CacheScheme{}, of.workload, batch);
    EstimateRow row{.of = of};
    if (batch <= largest_batch(hardware, shape, of.scheme, of.workload))
      row.run = estimate_run(hardware, shape, of.scheme, of.workload, batch);
    if (row.run && full) row.speedup = row.run->tokens_per_second / full->tokens_per_second;
    rows.push_back(std::move(row));
  }
  return rows;
}

namespace {

/// Requests that verify one after the other: compressed caches and one full one beside the weights.
int64_t requests_that_fit(const DecodingMachine& machine, const DecodingLoad& load, double kept) {
  const double free = machine.memory_bytes - load.weight_bytes - load.cache_bytes;
  return std::max<int64_t>(0, static_cast<int64_t>(std::floor(free / (kept * load.cache_bytes))));
}

/// Resident requests of a plan whose full caches stay beside the compressed caches of all.
int64_t residents_that_fit(const DecodingMachine& machine, const DecodingLoad& load, const DecodingPlan& plan,
                           int64_t requests) {
  const double room =
      machine.memory_bytes - load.weight_bytes - static_cast<double>(requests) * plan.kept * load.cache_bytes;
  const std::vector<double> full(static_cast<size_t>(requests), load.cache_bytes);
  return std::min(plan.resident, full_caches_that_stay(room, full));
}

/// The most iterations that go by while a full cache is reloaded.
int64_t reload_iterations(const DecodingMachine& machine, const DecodingLoad& load) {
  return static_cast<int64_t>(
      std::ceil(load.cache_bytes / machine.link_bandwidth * machine.memory_bandwidth / load.weight_bytes));
}

std::vector<ScheduleRow> schedule_rows(const DecodingMachine& machine, const DecodingLoad& load,
                                       const DecodingPlan& plan, int64_t output, const AcceptanceCurve& acceptance,
                                       bool load_at_arrival) {
  std::vector<ScheduleRow> rows;
  const int64_t requests = std::min(plan.resident + plan.offloaded, requests_that_fit(machine, load, plan.kept));
  for (const char* name : {"staggered", "lock_step", "sequential"}) {
    ScheduleRow row{.schedule = name, .requests = requests};
    const ScheduleKind kind = schedule_named(name);
    ModelledSettings settings{.machine = machine,
                              .load = load,
                              .kept = plan.kept,
                              .requests = requests,
                              .draft_length = plan.draft_length,
                              .output_tokens = output,
                              .kind = kind,
                              .load_at_arrival = load_at_arrival};
    if (kind == ScheduleKind::staggered) settings.resident = residents_that_fit(machine, load, plan, requests);
    settings.windows = std::max(settings.windows, plan.draft_length + reload_iterations(machine, load) + 1);
    if (requests > 0) row.run = run_modelled(settings, acceptance);
    row.fits = row.run && row.run->peak_bytes <= machine.memory_bytes;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<PlanRow> plan_rows(const Hardware& hardware, const ModelShape& shape, const AcceptanceFile& acceptance,
                               const std::vector<Workload>& workloads, LinkModel link, bool load_at_arrival) {
  const Efficiency& reached = hardware.efficiency;
  const DecodingMachine machine{.memory_bytes = hardware.memory_bytes() * reached.usable_memory,
                                .memory_bandwidth = hardware.memory_bytes_per_second() * reached.memory,
                                .link_bandwidth = hardware.link("host").bytes_per_second() *
                                                  static_cast<double>(hardware.accelerators) * reached.link};
  const auto gamma = [&](int64_t draft_length, double kept) {
    const AcceptanceFile::Curve* curve = acceptance.best(draft_length, kept);
    return curve ? curve->acceptance.rate(draft_length) : 0;
  };
  std::vector<PlanRow> rows;
  for (const Workload& workload : workloads) {
    const double entries = static_cast<double>(workload.context) + static_cast<double>(workload.output) / 2;
    const auto weight_bytes = static_cast<double>(shape.parameter_count() * workload.weight_bits) / 8;
    const DecodingLoad load{.weight_bytes = weight_bytes, .cache_bytes = request_bytes(shape, {}, entries).resident};
    rows.push_back({.workload = workload,
                    .best = best_plan(machine, load, acceptance.choices(), gamma, link),
                    .full = full_cache_estimate(machine, load)});
    PlanRow& row = rows.back();
    if (!row.best) continue;
    const DecodingPlan& plan = row.best->plan;
    row.short_iteration_seconds =
        short_iteration_seconds(machine, load, plan.resident + plan.offloaded, plan.draft_length, plan.kept);
    if (const AcceptanceFile::Curve* curve = acceptance.best(plan.draft_length, plan.kept)) {
      row.drafter = curve->drafter;
      row.schedules = schedule_rows(machine, load, plan, workload.output, curve->acceptance, load_at_arrival);
    }
  }
  return rows;
}

json inputs_json(const Hardware& hardware, const ModelShape& shape) {
  json links = json::object();
  for (const auto& [name, link] : hardware.links) links[name] = values_json(link);
  json machine = {{"name", hardware.name},
                  {"title", hardware.title},
                  {"accelerators", hardware.accelerators},
                  {"memory_gib", figure_json(hardware.memory_gib)},
                  {"memory_gb_per_s", figure_json(hardware.memory_gb_per_s)},
                  {"compute_tflop_per_s", figure_json(hardware.compute_tflop_per_s)},
                  {"links", links}};
  if (hardware.host_memory_gib) machine["host_memory_gib"] = figure_json(*hardware.host_memory_gib);
  json model = values_json(shape);
  model["name"] = shape.name;
  model["parameters"] = shape.parameter_count();
  model["cache_bytes_per_token"] = 2 * shape.numbers_per_entry();
  return {
      {"modelled", true}, {"hardware", machine}, {"efficiency", values_json(hardware.efficiency)}, {"model", model}};
}

json estimate_json(const EstimateRow& row) {
  json out = {{"context", row.of.workload.context},
              {"output", row.of.workload.output},
              {"weight_bits", row.of.workload.weight_bits},
              {"cache", values_json(row.of.scheme)},
              {"fits", row.run.has_value()}};
  if (!row.run) return out;
  const StepEstimate& step = row.run->step;
  out["batch"] = row.run->batch;
  out["time_per_output_token_ms"] = 1000 * step.seconds;
  out["throughput_tokens_per_s"] = row.run->tokens_per_second;
  out["end_to_end_tokens_per_s"] = row.run->end_to_end_tokens_per_second;
  out["prefill_s"] = row.run->prefill_seconds;
  out["bound"] = name_of(step.bound);
  out["speedup"] = row.speedup > 0 ? json(row.speedup) : json();
  out["request_bytes"] = row.run->request.resident;
  out["step"] = {{"weight_bytes", step.weight_bytes}, {"cache_bytes", step.cache_bytes},
                 {"link_bytes", step.link_bytes},     {"flops", step.flops},
                 {"memory_s", step.memory_seconds},   {"link_s", step.link_seconds},
                 {"compute_s", step.compute_seconds}};
  return out;
}

namespace {

json schedule_json(const ScheduleRow& row) {
  json out = {{"schedule", row.schedule}, {"batch", row.requests}, {"fits", row.fits}};
  if (!row.run) return out;
  out["throughput_tokens_per_s"] = row.run->tokens_per_second();
  out["peak_gb"] = 1e-9 * row.run->peak_bytes;
  out["link_in_use"] = row.run->link_busy_seconds / row.run->seconds;
  out["late_verifications"] = row.run->late_verifies;
  return out;
}

}  // namespace

json plan_json(const PlanRow& row) {
  json out = {{"context", row.workload.context}, {"output", row.workload.output}, {"fits", row.best.has_value()}};
  if (row.full) {
    out["full_kv"] = {{"batch", row.full->requests}, {"throughput_tokens_per_s", row.full->tokens_per_second}};
  }
  if (!row.best) return out;
  const DecodingPlan& plan = row.best->plan;
  out["resident"] = plan.resident;
  out["offloaded"] = plan.offloaded;
  out["draft_length"] = plan.draft_length;
  out["keep"] = plan.kept;
  if (!row.drafter.empty()) out["drafter"] = row.drafter;
  out["acceptance_rate"] = plan.acceptance;
  out["reload_iterations"] = plan.reload_iterations;
  out["iteration_ms"] = 1000 * row.best->estimate.iteration_seconds;
  out["throughput_tokens_per_s"] = row.best->estimate.tokens_per_second;
  out["speedup"] = row.best->speedup > 0 ? json(row.best->speedup) : json();
  out["equation_3_ms"] = 1000 * row.short_iteration_seconds;
  for (const ScheduleRow& schedule : row.schedules) out["schedules"].push_back(schedule_json(schedule));
  return out;
}

json calibration_json(const Calibration& calibration) {
  json rows = json::array();
  for (const ValidatedRow& row : calibration.rows) {
    rows.push_back({{"name", row.row.name},
                    {"measured_ms", 1000 * row.row.seconds},
                    {"modelled_ms", 1000 * row.modelled_seconds},
                    {"error", row.error()},
                    {"calibrating", row.calibrating}});
  }
  return {{"efficiency", values_json(calibration.efficiency)},
          {"read_gb_per_s", calibration.read_bytes_per_second / 1e9},
          {"peak_gflop_per_s", calibration.peak_flop_per_second / 1e9},
          {"median_error", calibration.median_error()},
          {"rows", rows}};
}

}  // namespace kvarena::cost_model
