#include "harness/results/invented_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/data_origin.h"

namespace kvarena::results {
namespace {

/// The words that both begin with; `a` where they have none in common.
std::string common_words(const std::string& a, const std::string& b) {
  size_t same = 0, word = 0;
  while (same < a.size() && same < b.size() && a[same] == b[same]) {
    ++same;
    const bool end_a = same == a.size() || a[same] == ' ', end_b = same == b.size() || b[same] == ' ';
    if (end_a && end_b) word = same;
  }
  return a.substr(0, word);
}

}  // namespace

std::vector<InventedData> invented_data(std::span<const RunInput> inputs) {
  std::vector<InventedData> found;
  for (const RunInput& input : inputs) {
    if (input.kind != "data") continue;
    const nlohmann::json detail = nlohmann::json::parse(input.detail_json, nullptr, /*allow_exceptions=*/false);
    if (!detail.is_object() || detail.value("origin", "") != kProjectMade) continue;
    InventedData one{
        .model = input.model, .workload = input.name, .instead_of = detail.value("instead_of", input.name)};
    if (std::ranges::find(found, one) == found.end()) found.push_back(std::move(one));
  }
  return found;
}

std::string invented_mark(std::span<const InventedData> data) {
  std::vector<std::string> names;
  for (const InventedData& one : data) {
    const auto alike = std::ranges::find_if(
        names, [&](const std::string& name) { return !common_words(name, one.instead_of).empty(); });
    if (alike == names.end()) {
      names.push_back(one.instead_of);
    } else {
      *alike = common_words(*alike, one.instead_of);
    }
  }
  return names.empty() ? "" : fmt::format("{}, not {}", kProjectMade, fmt::join(names, " or "));
}

}  // namespace kvarena::results
