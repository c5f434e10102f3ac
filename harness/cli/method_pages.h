#pragma once
// The registry as Markdown pages: docs/methods.

#include <string>

#include "harness/method/method.h"

namespace kvarena::cli {

/// Markdown: the family's description, its methods in a table, and each with paper, needs, settings and an example.
[[nodiscard]] std::string family_page(Family family);

/// Markdown: the families with their pages and how many methods each has.
[[nodiscard]] std::string families_page();

}  // namespace kvarena::cli
