#pragma once
// What --help prints.

#include <string>

#include "harness/cli/command.h"

namespace kvarena::cli {

/// Examples, then usage, then options or commands. `path` is how the command is called: "kvarena model logits".
[[nodiscard]] std::string help_text(const Command& command, const std::string& path);

}  // namespace kvarena::cli
