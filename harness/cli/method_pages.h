#pragma once
// The registry as pages to read: docs/methods.

#include <string>

#include "harness/method/method.h"

namespace kvarena::cli {

/// Markdown: what the family is, its methods in a table, and each with paper, needs, settings and how to ask for it.
[[nodiscard]] std::string family_page(Family family);

/// Markdown: the families with their pages and how many methods each has.
[[nodiscard]] std::string families_page();

}  // namespace kvarena::cli
