#include "reports/method_settings.h"

#include <algorithm>
#include <utility>

namespace kvarena::reports {
namespace {

using nlohmann::json;

constexpr const char* kLength = "draft_length";

/// The beginning that labels share; `otherwise` when they share none.
std::string common_label(const std::map<int64_t, std::string>& labels, const std::string& otherwise) {
  std::string common = labels.begin()->second;
  for (const auto& [length, label] : labels) {
    const auto [end, rest] = std::ranges::mismatch(common, label);
    common.erase(end, common.end());
  }
  if (labels.size() == 1) return common;
  if (const size_t last = common.find_last_of(",("); last != std::string::npos) common.erase(last);
  while (!common.empty() && (common.back() == ' ' || common.back() == '=')) common.pop_back();
  return common.empty() ? otherwise : common;
}

}  // namespace

std::map<std::string, std::vector<Asked>> methods_by_name(const ExperimentData& data) {
  std::map<std::string, std::vector<Asked>> methods;
  for (const std::string& label : data.methods()) {
    const auto cell =
        std::ranges::find_if(data.cells, [&](const CellData& each) { return each.row.cell.method == label; });
    if (cell == data.cells.end()) continue;
    json settings = json::parse(cell->row.cell.settings_json, nullptr, /*allow_exceptions=*/false);
    if (settings.is_object()) methods[cell->row.cell.method_name].push_back({label, std::move(settings)});
  }
  return methods;
}

std::vector<DraftingMethods> drafting_methods(const ExperimentData& data) {
  std::vector<DraftingMethods> found;
  for (const auto& [name, methods] : methods_by_name(data)) {
    std::map<std::string, DraftingMethods> alike;  // by all other settings
    for (const Asked& method : methods) {
      if (!method.settings.contains(kLength) || !method.settings[kLength].is_number_integer()) continue;
      json others = method.settings;
      others.erase(kLength);
      DraftingMethods& group = alike[others.dump()];
      group.settings = std::move(others);
      group.lengths.emplace(method.settings[kLength].get<int64_t>(), method.label);
    }
    for (auto& [settings, group] : alike) {
      group.label = common_label(group.lengths, name);
      found.push_back(std::move(group));
    }
  }
  return found;
}

}  // namespace kvarena::reports
