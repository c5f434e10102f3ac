#pragma once

#include <string>
#include <vector>

namespace kvarena {

/// "| a | b |" with its line break: a row of a Markdown table, its heads or the rules below them. Fields are Markdown.
[[nodiscard]] std::string markdown_row(const std::vector<std::string>& fields);

}  // namespace kvarena
