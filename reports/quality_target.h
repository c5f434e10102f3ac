#pragma once
// The fastest setting of each method that reaches a quality, load by load: latency against rate at one quality.
// Feng et al. 2025, arXiv:2512.14946 (EvicPress), Figure 8.

#include <span>

#include "reports/experiment_data.h"
#include "reports/sections.h"

namespace kvarena::reports {

/// Adds a table, and a chart a workload, of the settings that at each load have the least mean time to first token
/// among those of a method whose score under load is at least the config's serving.score_share. Settings are of one
/// method when they name the same one, over the same compressor. Nothing where no method has two settings.
void add_quality_target(std::span<const CellData* const> cells, Section& section);

}  // namespace kvarena::reports
