#include "harness/core/markdown.h"

#include <fmt/format.h>

namespace kvarena {

std::string markdown_row(const std::vector<std::string>& fields) {
  return fmt::format("| {} |\n", fmt::join(fields, " | "));
}

}  // namespace kvarena
