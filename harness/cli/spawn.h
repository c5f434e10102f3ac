#pragma once
// Other programs, run with this one's input and output.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace kvarena::cli {

struct Spawn {
  std::vector<std::string> words;                                // program and arguments
  std::vector<std::pair<std::string, std::string>> environment;  // added to this program's
  std::filesystem::path folder;                                  // to work in; empty: this program's
};

/// Runs the program to its end. Returns its exit code; 127 where it is not there, 126 where a signal ended it.
[[nodiscard]] int spawn(Spawn program);

}  // namespace kvarena::cli
