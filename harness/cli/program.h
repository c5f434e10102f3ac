#pragma once
// The program, from command line to exit code.

#include <string>
#include <vector>

#include "harness/cli/command.h"

namespace kvarena::cli {

/// The program with all of its commands.
[[nodiscard]] Command root_command();

/// Runs the command that `args` name, or prints its help. Returns the exit code. Throws UserError.
[[nodiscard]] int answer(const Command& root, const std::vector<std::string>& args);

/// Runs `args` (without the program's name). Results go to standard output, everything else to standard error. Returns
/// 0 for success, 1 where a command ran and its answer is no, 2 where it could not be done; never throws.
[[nodiscard]] int run_program(const std::vector<std::string>& args);

}  // namespace kvarena::cli
