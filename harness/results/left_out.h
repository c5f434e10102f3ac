#pragma once
// Samples beyond a model's window, in words.

#include <string>

#include "harness/results/records.h"

namespace kvarena::results {

/// "2 beyond the window of 2048"; "" when the cell has every sample. The window is on its protocol card.
[[nodiscard]] std::string left_out_text(const CellRecord& cell);

}  // namespace kvarena::results
