#include "harness/results/records.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace kvarena::results {
namespace {

/// The first (name, clock) that a list has twice; "" when none.
template <typename Item>
std::string repeated(const std::vector<Item>& items, std::string Item::*name) {
  std::set<std::pair<std::string, Clock>> seen;
  for (const Item& item : items) {
    if (!seen.emplace(item.*name, item.clock).second) return item.*name;
  }
  return "";
}

}  // namespace

std::string_view name(Clock value) {
  switch (value) {
    case Clock::none: return "none";
    case Clock::measured: return "measured";
    case Clock::modelled: return "modelled";
  }
  return "";
}

std::string_view name(Storage value) {
  switch (value) {
    case Storage::real: return "real";
    case Storage::emulated: return "emulated";
    case Storage::simulated: return "simulated";
  }
  return "";
}

std::string_view name(CellKind value) {
  switch (value) {
    case CellKind::quality: return "quality";
    case CellKind::timing: return "timing";
    case CellKind::noise_floor: return "noise_floor";
    case CellKind::serving: return "serving";
  }
  return "";
}

std::string_view name(Direction value) {
  switch (value) {
    case Direction::neither: return "";
    case Direction::higher: return "higher";
    case Direction::lower: return "lower";
  }
  return "";
}

std::string_view name(Statistic value) {
  switch (value) {
    case Statistic::mean: return "mean";
    case Statistic::minimum: return "minimum";
    case Statistic::relative: return "relative";
    case Statistic::reduction: return "reduction";
    case Statistic::median_drop: return "median drop";
    case Statistic::drop_variation: return "drop variation";
    case Statistic::best_for: return "best for";
    case Statistic::best_ratio_variation: return "best ratio variation";
    case Statistic::equal_quality: return "at equal quality";
    case Statistic::equal_time: return "at equal time";
    case Statistic::gain: return "gain";
    case Statistic::equal_rate: return "at equal rate";
    case Statistic::near_reduction: return "reduction within 3%";
    case Statistic::equal_time_load: return "load at equal time";
  }
  return "";
}

bool has_rivals(Statistic value) {
  using enum Statistic;
  constexpr std::array kAlone = {mean, minimum, median_drop, drop_variation, best_for, best_ratio_variation};
  return std::ranges::find(kAlone, value) == kAlone.end();
}

std::string_view name(CellState value) {
  switch (value) {
    case CellState::pending: return "pending";
    case CellState::running: return "running";
    case CellState::done: return "done";
    case CellState::failed: return "failed";
    case CellState::inactive: return "inactive";
    case CellState::missing: return "missing";
  }
  return "";
}

std::string_view name(RunState value) {
  switch (value) {
    case RunState::running: return "running";
    case RunState::finished: return "finished";
    case RunState::interrupted: return "interrupted";
    case RunState::failed: return "failed";
  }
  return "";
}

std::string problem_of(const SampleResult& result) {
  for (const std::string* text : {&result.references_json, &result.activity_json}) {
    if (!nlohmann::json::accept(*text)) return fmt::format("\"{}\" where JSON is due", text->substr(0, 80));
  }
  for (const Event& event : result.events) {
    if (!nlohmann::json::accept(event.data_json)) return fmt::format("event {} without JSON data", event.event);
  }
  if (const std::string twice = repeated(result.values, &MetricValue::metric); !twice.empty()) {
    return fmt::format("metric {} twice", twice);
  }
  if (const std::string twice = repeated(result.series, &Series::name); !twice.empty()) {
    return fmt::format("series {} twice", twice);
  }
  return "";
}

}  // namespace kvarena::results
