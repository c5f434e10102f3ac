#pragma once
// The mark of numbers that came over an emulated link or from an emulated tier, in every table, chart and file.

#include <string>

#include "harness/results/records.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

inline constexpr const char* kEmulatedMark = "emu";

/// The label, with the mark behind it where it is wanted: "VeriCache (emu)".
[[nodiscard]] std::string marked_label(const std::string& label, bool emulated);
/// The caption, with what the mark means behind it where it is wanted.
[[nodiscard]] std::string marked_caption(const std::string& caption, bool emulated);

/// Whether a cell has emulated values, or a series, of a metric.
[[nodiscard]] bool is_emulated(const CellData& cell, const std::string& metric);
/// Whether one of a method's cells of a kind has.
[[nodiscard]] bool is_emulated(const ExperimentData& data, const std::string& method, results::CellKind kind,
                               const std::string& metric);

}  // namespace kvarena::reports
