#pragma once
// Picture of the positions that a method keeps.

#include <string>

#include "harness/cli/inspection.h"

namespace kvarena::cli {

/// An SVG heat map: a row for each layer and kv head, positions from left to right, coloured by the share of positions
/// that are held after the prompt; for a method that selects at each step, by the share of steps that attended to them.
[[nodiscard]] std::string inspection_picture(const Inspection& inspection, int64_t prompt_tokens,
                                             const std::string& title);

}  // namespace kvarena::cli
