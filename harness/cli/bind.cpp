#include "harness/cli/bind.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::cli {
namespace {

/// The library only sorts words into options; checking and converting is assign()'s, so that messages are ours.
struct Bound {
  const Command* command = nullptr;
  OptionSet options;
  CLI::App* app = nullptr;
  CLI::Option* help = nullptr;
  std::vector<CLI::Option*> slots;  // one each of options.all(); null for the one that takes the words left over
  std::vector<Bound> commands;
};

/// Whether a positional takes several words. The library would split words in brackets, so they are taken from its
/// rest.
bool takes_rest(const Option& option) { return option.positional && option.takes_many(); }

CLI::Option* add_slot(CLI::App& app, const Option& option) {
  if (takes_rest(option)) return nullptr;
  if (option.is_flag()) {
    return app.add_flag("--" + option.name)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  return app.add_option(option.positional ? option.name : "--" + option.name)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

Bound bind_command(const Command& command, CLI::App& app) {
  Bound bound{.command = &command, .options = command.options(), .app = &app};
  app.set_help_flag();
  app.allow_extras();
  bound.help = app.add_flag("-h,--help");
  for (const Option& option : bound.options.all()) bound.slots.push_back(add_slot(app, option));
  for (const Command& child : command.commands) {
    bound.commands.push_back(bind_command(child, *app.add_subcommand(child.name)));
  }
  return bound;
}

/// Words that nothing took: a slip in a command's or an option's name, or one word too many. `path` is the way from
/// the program to the command: "", "model ", "model logits ".
void refuse_words(const Bound& bound, const std::string& path) {
  std::vector<std::string> words = bound.app->remaining();
  if (std::ranges::any_of(bound.options.all(), takes_rest)) {
    std::erase_if(words, [](const std::string& word) { return !word.starts_with("-"); });
  }
  if (words.empty()) return;
  const std::string& word = words.front();
  const std::string place = path.empty() ? "" : fmt::format("{}: ", path.substr(0, path.size() - 1));
  const std::string action = fmt::format("`kvarena {}--help` lists all", path);
  if (word.starts_with("-") && word.size() > 1) {
    std::vector<std::string> names = bound.options.names();
    names.emplace_back("--help");
    fail({.place = fmt::format("{}there is no option \"{}\"", place, word),
          .nearest = nearest_name(word.substr(0, word.find('=')), names),
          .action = action});
  }
  if (!bound.commands.empty() && !bound.command->run) {
    std::vector<std::string> names;
    for (const Bound& child : bound.commands) {
      if (!child.command->hidden) names.push_back(child.command->name);
    }
    fail({.place = fmt::format("{}there is no command \"{}\"", place, word),
          .nearest = nearest_name(word, names),
          .action = action});
  }
  fail({.place = fmt::format("{}one word too many: \"{}\"", place, word), .action = action});
}

/// `--prompt --chat` forgot the prompt rather than asking about the word "--chat".
void refuse_names_as_values(const OptionSet& options, const Option& option, const std::vector<std::string>& values) {
  const std::vector<std::string> names = options.names();
  for (const std::string& value : values) {
    if (std::ranges::find(names, value) != names.end()) {
      fail({.place = option.display(), .found = fmt::format("the option {}", value), .expected = "a value"});
    }
  }
}

void parse(CLI::App& app, const std::vector<std::string>& args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // the library takes words from the back
  try {
    app.parse(reversed);
  } catch (const CLI::ArgumentMismatch&) {  // only an option at the very end can lack its value
    fail({.place = args.back(), .found = "nothing", .expected = "a value"});
  } catch (const CLI::ParseError& error) {
    throw UserError(error.what());
  }
}

}  // namespace

Invocation bind(const Command& root, const std::vector<std::string>& args) {
  CLI::App app;
  const Bound bound_root = bind_command(root, app);
  const CLI::Option* version = app.add_flag("-v,--version");
  parse(app, args);

  const Bound* bound = &bound_root;
  std::string path;
  bool help = false;
  while (true) {
    help = help || bound->help->count() > 0;
    if (!help || !bound->commands.empty()) refuse_words(*bound, path);
    const auto next = std::ranges::find_if(bound->commands, [](const Bound& child) { return child.app->parsed(); });
    if (next == bound->commands.end()) break;
    bound = &*next;
    path += bound->command->name + " ";
  }
  Invocation invocation{bound->command, root.name + (path.empty() ? "" : " " + path.substr(0, path.size() - 1)), help,
                        version->count() > 0};
  if (invocation.help || invocation.version) return invocation;
  if (!bound->command->run) {
    invocation.help = true;
    return invocation;
  }
  for (size_t i = 0; i < bound->slots.size(); ++i) {
    const Option& option = bound->options.all()[i];
    const std::vector<std::string> values =
        bound->slots[i] == nullptr ? bound->app->remaining() : bound->slots[i]->results();
    refuse_names_as_values(bound->options, option, values);
    assign(option, values);
  }
  return invocation;
}

}  // namespace kvarena::cli
