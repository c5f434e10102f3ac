#pragma once
// Jinja's grammar, as far as chat templates use it: no inheritance, no imports.

#include <string_view>

#include "harness/model/jinja/nodes.h"

namespace kvarena::jinja {

/// Throws UserError naming the line, what was found and what was expected.
[[nodiscard]] Block parse(std::string_view program);

}  // namespace kvarena::jinja
