#include <fmt/format.h>

#include <charconv>
#include <map>

#include "reports/chart_specs.h"
#include "reports/escape.h"
#include "reports/sections.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

/// A sample of a grid of context lengths and needle depths, by its id: "length-4096-depth-50".
struct Place {
  int64_t length = 0;
  double depth = 0;
};

template <typename Number>
bool take_number(std::string_view& text, std::string_view name, Number& value) {
  if (!text.starts_with(name)) return false;
  text.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return error == std::errc();
}

std::optional<Place> place_of(std::string_view sample) {
  Place place;
  const bool read = take_number(sample, "length-", place.length) && take_number(sample, "-depth-", place.depth);
  return read && sample.empty() ? std::optional(place) : std::nullopt;
}

/// Scores by depth and length, of samples that have a place. Rows and columns of a whole grid come out ascending.
std::map<std::pair<double, int64_t>, double> grid_of(const CellData& cell, const std::string& metric) {
  std::map<std::pair<double, int64_t>, double> grid;
  const auto values = cell.values->find(metric);
  if (values == cell.values->end()) return grid;
  for (const results::ValueRow& row : values->second.rows) {
    if (const auto place = place_of(row.sample_id)) grid[{place->depth, place->length}] = row.value;
  }
  return grid;
}

}  // namespace

std::optional<Section> needle_section(const ExperimentData& data) {
  constexpr size_t kFewest = 4;  // places that make a grid
  Section section{.id = "needle", .title = "Needle in a haystack"};
  for (const std::string& workload : data.workloads()) {
    const std::string metric = primary_metric(data, workload);
    const MetricLook look = look_of(data, metric);
    for (const std::string& method : data.methods()) {
      const CellData* cell = data.find(method, workload, results::CellKind::quality);
      if (cell == nullptr || !cell->counts()) continue;
      const auto grid = grid_of(*cell, metric);
      if (grid.size() < kFewest) continue;
      std::vector<HeatCell> cells;
      for (const auto& [place, value] : grid)
        cells.push_back({fmt::format("{}", place.second), fmt::format("{:g}", place.first), look.scale * value});
      section.charts.push_back(heat_map(fmt::format("needle-{}-{}", slug(workload), slug(method)),
                                        fmt::format("{}: {}", workload, method), "tokens", "depth, %",
                                        look.unit.empty() ? metric : metric + ", " + look.unit, cells, 0));
      section.charts.back().caption = "A cell a sample, measured; columns are lengths, rows depths from the start.";
    }
  }
  if (section.charts.empty()) return std::nullopt;
  return section;
}

}  // namespace kvarena::reports
