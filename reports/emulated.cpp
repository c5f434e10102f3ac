#include "reports/emulated.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvarena::reports {

std::string marked_label(const std::string& label, bool emulated) {
  return emulated ? fmt::format("{} ({})", label, kEmulatedMark) : label;
}

std::string marked_caption(const std::string& caption, bool emulated) {
  if (!emulated) return caption;
  return fmt::format("{}{}{}: over an emulated link, which takes the time that its description says.", caption,
                     caption.empty() ? "" : " ", kEmulatedMark);
}

bool is_emulated(const CellData& cell, const std::string& metric) {
  const auto values = cell.values->find(metric);
  if (values != cell.values->end() && values->second.storage == results::Storage::emulated) return true;
  const auto series = cell.series->find(metric);
  return series != cell.series->end() && std::ranges::any_of(series->second, [](const results::SeriesRow& row) {
           return row.series.storage == results::Storage::emulated;
         });
}

bool is_emulated(const ExperimentData& data, const std::string& method, results::CellKind kind,
                 const std::string& metric) {
  return std::ranges::any_of(data.workloads(), [&](const std::string& workload) {
    const CellData* cell = data.find(method, workload, kind);
    return cell != nullptr && cell->counts() && is_emulated(*cell, metric);
  });
}

}  // namespace kvarena::reports
