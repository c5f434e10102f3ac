#pragma once
// A command of the program: its help, its options, its function.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/cli/option_set.h"

namespace kvarena::cli {

struct Example {
  std::string line;     // "kvarena methods snapkv"
  std::string meaning;  // "describe one method"
};

struct Command {
  std::string name;               // "methods"
  std::string summary;            // one line without full stop, for the list of commands
  std::string heading;            // over which the list of commands begins a new part; empty = the part goes on
  std::string description;        // paragraphs for the command's own help; may be empty
  std::vector<Example> examples;  // help begins with them
  std::vector<Command> commands;  // chosen by the first word; without one of them `run` answers, or help
  bool hidden = false;            // for the program itself: no help text shows it

  std::function<void(OptionSet&)> declare;
  /// Called after every option was assigned. Returns the exit code: 0, or 1 where the answer is no (a failed cell, a
  /// regression). Throws UserError.
  std::function<int()> run;

  [[nodiscard]] OptionSet options() const;
};

/// A word of a command line as a shell takes it whole: as it is, or in single quotes.
[[nodiscard]] std::string shell_word(const std::string& word);

/// A command whose options are the struct `Options`, which has `void declare(OptionSet&)`.
template <typename Options>
[[nodiscard]] Command make_command(Command command, int (*run)(const Options&)) {
  const auto options = std::make_shared<Options>();
  command.declare = [options](OptionSet& set) { options->declare(set); };
  command.run = [options, run] { return run(*options); };
  return command;
}

}  // namespace kvarena::cli
