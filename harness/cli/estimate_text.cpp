#include "harness/cli/estimate_text.h"

#include <fmt/format.h>

#include "harness/core/page.h"
#include "harness/core/terminal.h"

namespace kvarena::cli {
namespace {

using cost_model::Calibration;
using cost_model::Hardware;
using cost_model::ModelShape;

std::string optional_ratio(double value) { return value > 0 ? fmt::format("{:.2f}x", value) : "-"; }

void print_schedules(const std::vector<cost_model::PlanRow>& rows) {
  std::vector<std::vector<std::string>> table = {
      {"context", "schedule", "batch", "tokens/s", "peak GB", "link in use", "late verifications"}};
  for (const cost_model::PlanRow& row : rows) {
    for (const cost_model::ScheduleRow& schedule : row.schedules) {
      std::vector<std::string> line = {std::to_string(row.workload.context), schedule.schedule,
                                       std::to_string(schedule.requests)};
      if (!schedule.run) {
        line.insert(line.end(), {"-", "does not fit", "-", "-"});
      } else {
        line.insert(line.end(),
                    {fmt::format("{:.1f}", schedule.run->tokens_per_second()),
                     fmt::format("{:.1f}{}", 1e-9 * schedule.run->peak_bytes, schedule.fits ? "" : ", does not fit"),
                     fmt::format("{:.0f}%", 100 * schedule.run->link_busy_seconds / schedule.run->seconds),
                     std::to_string(schedule.run->late_verifies)});
      }
      table.push_back(std::move(line));
    }
  }
  if (table.size() == 1) return;
  print(Page().text("\n").bold("The plan's requests, all offloaded, iteration by iteration").text("\n").columns(table));
}

}  // namespace

void print_estimates(const std::vector<cost_model::EstimateRow>& rows) {
  std::vector<std::vector<std::string>> table = {
      {"context", "cache", "batch", "ms/token", "tokens/s", "speed-up", "bound by", "prefill s", "a request"}};
  for (const cost_model::EstimateRow& row : rows) {
    std::vector<std::string> line = {std::to_string(row.of.workload.context), row.of.scheme.label};
    if (!row.run) {
      line.insert(line.end(), {"0", "-", "-", "-", "memory", "-", "-"});
    } else {
      line.insert(line.end(), {std::to_string(row.run->batch), fmt::format("{:.2f}", 1000 * row.run->step.seconds),
                               fmt::format("{:.1f}", row.run->tokens_per_second), optional_ratio(row.speedup),
                               std::string(cost_model::name_of(row.run->step.bound)),
                               fmt::format("{:.2f}", row.run->prefill_seconds),
                               bytes_text(static_cast<int64_t>(row.run->request.resident))});
    }
    table.push_back(std::move(line));
  }
  print(Page().columns(table));
}

void print_measured(const std::vector<MeasuredMethod>& methods, const std::string& model) {
  print(Page().text("\n").bold(fmt::format("Measured on {}, in entries of full KV", model)).text("\n"));
  std::vector<std::vector<std::string>> table = {
      {"method", "prompt", "resident", "behind the device", "attended", "fetched a step"}};
  for (const MeasuredMethod& method : methods) {
    for (const MethodCost& cost : method.costs) {
      table.push_back({method.label, std::to_string(cost.prompt), fmt::format("{:.1f}", cost.resident),
                       fmt::format("{:.1f}", cost.host), fmt::format("{:.1f}", cost.attended),
                       fmt::format("{:.1f}", cost.fetched)});
    }
  }
  print(Page().columns(table));
  print("  other lengths go on along the line through these\n");
}

void print_plans(const std::vector<cost_model::PlanRow>& rows, const std::string& source) {
  print(Page().text("\n").bold("Drafting on a compressed cache, verified over the host link").text("\n"));
  if (!source.empty()) print(fmt::format("  acceptance: {}\n", source));
  std::vector<std::vector<std::string>> table = {
      {"context", "drafter", "keep", "drafts", "accepted", "resident", "offloaded", "ms/pass", "tokens/s", "speed-up"}};
  for (const cost_model::PlanRow& row : rows) {
    std::vector<std::string> line = {std::to_string(row.workload.context), row.drafter.empty() ? "-" : row.drafter};
    if (!row.best) {
      line.insert(line.end(), {"-", "-", "-", "-", "-", "-", "no plan fits", "-"});
    } else {
      const cost_model::DecodingPlan& plan = row.best->plan;
      line.insert(line.end(),
                  {fmt::format("{:g}", plan.kept), std::to_string(plan.draft_length),
                   fmt::format("{:.0f}%", 100 * plan.acceptance), std::to_string(plan.resident),
                   std::to_string(plan.offloaded), fmt::format("{:.2f}", 1000 * row.best->estimate.iteration_seconds),
                   fmt::format("{:.1f}", row.best->estimate.tokens_per_second), optional_ratio(row.best->speedup)});
    }
    table.push_back(std::move(line));
  }
  print(Page().columns(table));
  print_schedules(rows);
}

void print_validation(const Calibration& calibration) {
  print(Page().bold("Modelled against measured, on the benchmarked machine").text("\n"));
  std::vector<std::vector<std::string>> table = {{"benchmark", "measured ms", "modelled ms", "error", ""}};
  for (const cost_model::ValidatedRow& row : calibration.rows) {
    table.push_back({row.row.name, fmt::format("{:.2f}", 1000 * row.row.seconds),
                     fmt::format("{:.2f}", 1000 * row.modelled_seconds), fmt::format("{:+.0f}%", 100 * row.error()),
                     row.calibrating ? "calibrates" : ""});
  }
  print(Page().columns(table));
  print(fmt::format("  median error where nothing was taken from: {:.0f}%\n", 100 * calibration.median_error()));
}

void print_inputs(const Hardware& hardware, const ModelShape& shape) {
  const cost_model::Efficiency& reached = hardware.efficiency;
  print(Page().text("\n").bold("Inputs").text("\n"));
  print(fmt::format(
      "  {}: {} x {:g} GiB at {:g} GB/s, {:g} TFLOP/s\n  {}: {:.2f} GB of weights in 16 bits, {} bytes a cached "
      "token\n  reached: {:.2f} of memory bandwidth, {:.2f} of FLOP/s, {:.2f} of links; {:.2f} of memory usable\n",
      hardware.title, hardware.accelerators, hardware.memory_gib.value, hardware.memory_gb_per_s.value,
      hardware.compute_tflop_per_s.value, shape.title, 2e-9 * static_cast<double>(shape.parameter_count()),
      2 * shape.numbers_per_entry(), reached.memory, reached.compute, reached.link, reached.usable_memory));
  print(Page().text("  ").wrapped(reached.source, 2, 2).text("\n"));
}

}  // namespace kvarena::cli
