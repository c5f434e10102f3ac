#pragma once
// Text of --help.

#include <string>

#include "harness/cli/command.h"
#include "harness/core/page.h"

namespace kvarena::cli {

/// Examples, then usage, then options or commands. `path` is how the command is called: "kvarena model logits".
[[nodiscard]] Page help_page(const Command& command, const std::string& path);

}  // namespace kvarena::cli
