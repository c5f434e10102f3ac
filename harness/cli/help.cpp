#include "harness/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvarena::cli {
namespace {

std::string usage(const Command& command, const OptionSet& options, const std::string& path) {
  std::string line = path;
  if (!command.commands.empty()) line += command.run ? " [COMMAND]" : " COMMAND";
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

Rows example_rows(const std::vector<Example>& examples) {
  Rows rows;
  for (const Example& example : examples) rows.push_back({example.line, example.meaning});
  return rows;
}

/// Lists commands, in one column of names whatever the headings between them.
void add_commands(Page& page, const std::vector<Command>& commands) {
  size_t width = 0;
  for (const Command& command : commands) width = std::max(width, command.hidden ? 0 : command.name.size());
  Rows rows;
  std::string heading = "Commands";
  const auto end_part = [&] {
    if (!rows.empty()) page.bold(heading).text("\n").columns(std::exchange(rows, {})).text("\n");
  };
  for (const Command& command : commands) {
    if (command.hidden) continue;
    if (!command.heading.empty()) {
      end_part();
      heading = command.heading;
    }
    rows.push_back({fmt::format("{:<{}}", command.name, width), command.summary});
  }
  end_part();
}

Rows option_rows(const OptionSet& options, bool of_the_program) {
  Rows rows;
  for (const bool positional : {true, false}) {
    for (const Option& option : options.all()) {
      if (option.positional != positional) continue;
      const std::string value = option.value_name.empty() ? "" : " " + option.value_name;
      rows.push_back({option.display() + value, described(option)});
    }
  }
  rows.push_back({"-h, --help", "show this text"});
  if (of_the_program) {
    rows.push_back({"-v, --version", "show version, revision and libraries"});
    rows.push_back({"--plugin FILE",
                    "methods of a shared library or a Python file join those of the program; with any command, several "
                    "times; also KVARENA_PLUGINS=FILE:FILE"});
  }
  return rows;
}

}  // namespace

Page help_page(const Command& command, const std::string& path) {
  const OptionSet options = command.options();
  const bool of_the_program = path.find(' ') == std::string::npos;
  Page page;
  page.bold(path).text(fmt::format(": {}\n\n", command.summary));
  if (!command.description.empty()) page.wrapped(command.description).text("\n\n");
  if (!command.examples.empty()) {
    page.bold(command.examples.size() == 1 ? "Example" : "Examples").text("\n");
    page.examples(example_rows(command.examples)).text("\n");
  }
  page.bold("Usage").text("\n  ").wrapped(usage(command, options, path), 4, 2).text("\n\n");
  add_commands(page, command.commands);
  page.bold("Options").text("\n").columns(option_rows(options, of_the_program));
  if (!command.commands.empty()) page.text(fmt::format("\n`{} COMMAND --help` explains a command.\n", path));
  return page;
}

}  // namespace kvarena::cli
