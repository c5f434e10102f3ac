#include "harness/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "harness/cli/terminal.h"

namespace kvarena::cli {
namespace {

std::string usage(const Command& command, const OptionSet& options, const std::string& path) {
  std::string line = path;
  if (!command.commands.empty()) line += " COMMAND";
  for (const Option& option : options.all()) {
    if (!option.positional) continue;
    const std::string word = option.name + (option.takes_many() ? "..." : "");
    line += option.required ? " " + word : " [" + word + "]";
  }
  for (const Option& option : options.all()) {
    if (!option.positional && option.required) line += fmt::format(" --{} {}", option.name, option.value_name);
  }
  return line + " [options]";
}

std::string described(const Option& option) {
  std::string text = option.help;
  if (!option.choices.empty()) text += fmt::format(": {}", fmt::join(option.choices, ", "));
  if (option.takes_many()) text += option.positional ? "; one or more" : "; may be given several times";
  if (!option.positional && option.required) text += "; required";
  if (!option.default_text.empty()) text += fmt::format(" [{}]", option.default_text);
  return text;
}

/// Side by side where they fit, otherwise each meaning below its line.
std::string examples_text(const std::vector<Example>& examples, size_t width) {
  size_t longest = 0;
  for (const Example& example : examples) longest = std::max(longest, display_width(example.line));
  std::vector<std::vector<std::string>> rows;
  std::string below;
  for (const Example& example : examples) {
    rows.push_back({example.line, example.meaning});
    below += fmt::format("  {}\n      {}\n", example.line, wrap(example.meaning, width, 6, 6));
  }
  return longest > width / 2 ? below : columns(rows, width);
}

std::vector<std::vector<std::string>> option_rows(const OptionSet& options) {
  std::vector<std::vector<std::string>> rows;
  for (const bool positional : {true, false}) {
    for (const Option& option : options.all()) {
      if (option.positional != positional) continue;
      const std::string value = option.value_name.empty() ? "" : " " + option.value_name;
      rows.push_back({option.display() + value, described(option)});
    }
  }
  rows.push_back({"-h, --help", "show this text"});
  return rows;
}

}  // namespace

std::string help_text(const Command& command, const std::string& path) {
  const size_t width = line_width(stdout);
  const OptionSet options = command.options();
  std::string text;
  if (!command.examples.empty()) {
    text += fmt::format("{}\n{}\n", bold(command.examples.size() == 1 ? "Example" : "Examples"),
                        examples_text(command.examples, width));
  }
  text += fmt::format("{}: {}\n\n", bold(path), command.summary);
  if (!command.description.empty()) text += wrap(command.description, width, 0, 0) + "\n\n";
  text += fmt::format("{}\n  {}\n\n", bold("Usage"), wrap(usage(command, options, path), width, 4, 2));
  if (!command.commands.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const Command& child : command.commands) {
      if (!child.hidden) rows.push_back({child.name, child.summary});
    }
    text += bold("Commands") + "\n" + columns(rows, width) + "\n";
  }
  auto rows = option_rows(options);
  if (path.find(' ') == std::string::npos) {
    rows.push_back({"--version", "show version, revision and libraries"});
    rows.push_back({"--plugin FILE",
                    "methods of a shared library join those of the program; with any command, several times; also "
                    "KVARENA_PLUGINS=FILE:FILE"});
  }
  text += bold("Options") + "\n" + columns(rows, width);
  if (!command.commands.empty()) text += fmt::format("\n`{} COMMAND --help` explains a command.\n", path);
  return text;
}

}  // namespace kvarena::cli
