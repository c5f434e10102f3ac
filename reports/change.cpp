#include "reports/change.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/core/error.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

int64_t changed_answers(const CellData& first, const CellData& second) {
  KVARENA_ASSERT(first.answers && second.answers, "runs are compared as read_run() reads them");
  return std::ranges::count_if(*second.answers, [&](const auto& answer) {
    const auto before = first.answers->find(answer.first);
    return before != first.answers->end() && before->second != answer.second;
  });
}

/// Settings that are in both texts, or in either, and not equal.
void list_differences(const std::string& first, const std::string& second, bool absent_counts,
                      std::vector<std::string>& list) {
  const json before = json::parse(first), after = json::parse(second);
  json all = before;
  all.update(after);
  const auto text = [](const json& object, const std::string& key) {
    return object.contains(key) ? object[key].dump() : std::string("absent");
  };
  for (const auto& [key, value] : all.items()) {
    if (key == "path" || (!absent_counts && !(before.contains(key) && after.contains(key)))) continue;
    if (text(before, key) != text(after, key))
      list.push_back(fmt::format("{}: {} / {}", key, text(before, key), text(after, key)));
  }
}

}  // namespace

bool exceeds(double points, double limit) { return points > limit + 1e-9 * std::max(1.0, std::abs(points)); }

std::optional<Change> change_between(const CellData& first, const CellData& second, const std::string& metric,
                                     const std::optional<NoiseFloor>& floor, const MetricLook& look, double margin) {
  const auto test = pair_cells(second, first, metric);
  if (!test) return std::nullopt;
  Change change{.test = *test, .answers = changed_answers(first, second), .difference = {}};
  if (test->wins + test->losses == 0 && change.answers == 0) return change;
  const bool noise = floor && floor->value > 0 && std::abs(test->difference) <= floor->value;
  change.difference = {.value = look.scale * test->difference,
                       .interval = {look.scale * test->interval.low, look.scale * test->interval.high},
                       .verdict = noise ? Verdict::no_difference
                                  : exceeds(std::abs(look.scale * test->difference), margin)
                                      ? direction_of(test->difference, look.better)
                                      : Verdict::differs,
                       .detectable = {}};
  return change;
}

std::string settings_differences(const CellData& first, const CellData& second) {
  const results::CellRecord& before = first.row.cell;
  const results::CellRecord& after = second.row.cell;
  std::vector<std::string> list;
  if (before.method_name != after.method_name)
    list.push_back(fmt::format("method: {} / {}", before.method_name, after.method_name));
  list_differences(before.settings_json, after.settings_json, true, list);
  list_differences(before.workload_json, after.workload_json, true, list);
  list_differences(before.engine_json, after.engine_json, false, list);
  list_differences(before.model_json, after.model_json, false, list);
  return fmt::format("{}", fmt::join(list, "; "));
}

}  // namespace kvarena::reports
