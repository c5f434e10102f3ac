#pragma once
// The share of numbers in a text that are the wanted one: retrieval and counting scores of LongBench.

#include <string_view>

namespace kvarena::metrics {

/// Runs of digits of `prediction` equal to `number` as strings, over all runs; 0 without any.
[[nodiscard]] double number_share(std::string_view prediction, std::string_view number);

/// The digits that follow the first `label` followed by a digit in `answer` ("Paragraph 7" -> "7"). Throws UserError
/// when there is none.
[[nodiscard]] std::string_view number_after(std::string_view answer, std::string_view label);

}  // namespace kvarena::metrics
