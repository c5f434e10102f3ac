#pragma once
// Parsing of a command line into a command with its options assigned. bind.cpp is the one file that knows the parsing
// library.

#include <string>
#include <vector>

#include "harness/cli/command.h"

namespace kvarena::cli {

struct Invocation {
  const Command* command = nullptr;  // points into the root
  std::string path;                  // "kvarena model logits"
  bool help = false;                 // help was asked for: options were neither checked nor assigned
  bool version = false;
};

/// `args` without the program's name. Throws UserError for words that are no command or option, with the nearest one,
/// for values of the wrong kind, and for what is missing.
[[nodiscard]] Invocation bind(const Command& root, const std::vector<std::string>& args);

}  // namespace kvarena::cli
