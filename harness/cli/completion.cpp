// kvarena completion SHELL: a script that completes commands, options and names in bash, zsh or fish.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "datasets/workload.h"
#include "harness/cli/commands.h"
#include "harness/cli/program.h"
#include "harness/core/page.h"
#include "harness/method/registry.h"
#include "metrics/registry.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::string shell;

  void declare(OptionSet& o) {
    o.positional("SHELL", shell).choices({"bash", "zsh", "fish"}).help("the shell that reads the script");
  }
};

/// Names that a value may be; none where any word or file may stand.
std::vector<std::string> names_of(const Option& option) {
  std::vector<std::string> names = option.choices;
  const std::string& what = option.positional ? option.name : option.value_name;
  if (what == "METHOD") {
    for (const MethodEntry& entry : method_registry()) names.push_back(entry.info.name);
  } else if (what == "WORKLOAD") {
    for (const datasets::WorkloadEntry& entry : datasets::workloads()) names.push_back(entry.info.name);
  } else if (what == "METRIC") {
    for (const metrics::MetricEntry* entry : metrics::all_metrics()) names.push_back(entry->id);
  }
  return names;
}

/// Calls `visit(command, path)` for the program and each command that people see, "kvarena model logits" among them.
template <typename Visit>
void for_each_command(const Command& command, const std::string& path, const Visit& visit) {
  visit(command, path);
  for (const Command& child : command.commands) {
    if (!child.hidden) for_each_command(child, path + " " + child.name, visit);
  }
}

/// Words that may follow a command: its commands, options, and names of its positionals.
std::vector<std::string> words_after(const Command& command) {
  std::vector<std::string> words;
  for (const Command& child : command.commands) {
    if (!child.hidden) words.push_back(child.name);
  }
  const OptionSet options = command.options();
  for (const Option& option : options.all()) {
    if (option.positional) std::ranges::copy(names_of(option), std::back_inserter(words));
    if (!option.positional) words.push_back(option.display());
  }
  words.emplace_back("--help");
  return words;
}

/// One function over two tables: what may follow a command, and which values an option takes. Where it offers nothing,
/// the shell offers files.
std::string bash_script(const Command& root) {
  std::string paths, words, values;
  for_each_command(root, root.name, [&](const Command& command, const std::string& path) {
    if (path != root.name) paths += fmt::format("{}'{}'", paths.empty() ? "" : " | ", path);
    words += fmt::format("    '{}') words='{}' ;;\n", path, fmt::join(words_after(command), " "));
    const OptionSet options = command.options();
    for (const Option& option : options.all()) {
      if (option.positional || option.is_flag()) continue;
      values += fmt::format("    '{} {}') words='{}' ;;\n", path, option.display(), fmt::join(names_of(option), " "));
    }
  });
  return fmt::format(R"(_kvarena() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} path=kvarena words= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
    {}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path ${{COMP_WORDS[COMP_CWORD-1]}}" in
{}    *)
    case "$path" in
{}    esac
    ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _kvarena kvarena
)",
                     paths, values, words);
}

/// Text in single quotes of fish.
std::string fish_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char letter : text) {
    if (letter == '\'' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted + "'";
}

std::string fish_script(const Command& root) {
  std::string script;
  for_each_command(root, root.name, [&](const Command& command, const std::string& path) {
    const bool top = path == root.name;
    const std::string when = top ? "-n __fish_use_subcommand"
                                 : fmt::format("-n '__fish_seen_subcommand_from {}'", path.substr(path.rfind(' ') + 1));
    for (const Command& child : command.commands) {
      if (child.hidden) continue;
      script += fmt::format("complete -c kvarena -f {} -a {} -d {}\n", when, child.name, fish_quoted(child.summary));
    }
    const OptionSet options = command.options();
    for (const Option& option : options.all()) {
      const std::vector<std::string> names = names_of(option);
      if (option.positional && names.empty()) continue;
      script += fmt::format("complete -c kvarena {}", when);
      if (!option.positional) script += fmt::format(" -l {}{}", option.name, option.is_flag() ? "" : " -r");
      if (!names.empty()) script += fmt::format(" -f -a {}", fish_quoted(fmt::format("{}", fmt::join(names, " "))));
      script += fmt::format(" -d {}\n", fish_quoted(option.help));
    }
  });
  return script + "complete -c kvarena -l help -s h -d 'show help'\n";
}

int run(const Options& options) {
  const Command root = root_command();
  if (options.shell == "fish") {
    print(fish_script(root));
  } else {
    print((options.shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + bash_script(root));
  }
  return 0;
}

}  // namespace

Command completion_command() {
  return make_command<Options>(
      {.name = "completion",
       .summary = "write a script that completes commands, options and names in a shell",
       .description = "",
       .examples = {{"source <(kvarena completion bash)", "in ~/.bashrc; zsh in ~/.zshrc alike"},
                    {"kvarena completion fish > ~/.config/fish/completions/kvarena.fish", "once"}}},
      run);
}

}  // namespace kvarena::cli
