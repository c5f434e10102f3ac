#pragma once
// Questions with four options, of which an answer is one.

#include <string>
#include <vector>

#include "datasets/prompt.h"
#include "datasets/records.h"

namespace kvarena::datasets {

/// The row's list `options`. Throws UserError unless it has four.
[[nodiscard]] std::vector<std::string> options_field(const Row& row, const std::string& place);

/// Slots OPTION_A to OPTION_D; they point into `options`.
[[nodiscard]] std::vector<Slot> option_slots(const std::vector<std::string>& options);

/// "A" for the first of the options that equals `answer`, and so on. Throws UserError when none does.
[[nodiscard]] std::string option_letter(const std::vector<std::string>& options, const std::string& answer,
                                        const std::string& place);

}  // namespace kvarena::datasets
