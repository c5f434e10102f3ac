#pragma once
// The program from its words to its exit code.

#include <string>
#include <vector>

namespace kvarena::cli {

/// Runs `args` (without the program's name). Results go to standard output, everything else to standard error. Returns
/// 0 only for success; never throws.
[[nodiscard]] int run_program(const std::vector<std::string>& args);

}  // namespace kvarena::cli
