#include "harness/cli/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "harness/cli/bind.h"
#include "harness/cli/commands.h"
#include "harness/cli/help.h"
#include "harness/core/logged_error.h"
#include "harness/core/page.h"
#include "harness/experiment/provenance.h"
#include "harness/method/plugins.h"

namespace kvarena::cli {
namespace {

constexpr int kTrouble = 2;  // as of diff and grep, which keep 1 for an answer

/// `kvarena help run` and `kvarena version` as the options that they mean.
std::vector<std::string> as_options(std::vector<std::string> args) {
  if (args.empty()) return args;
  if (args.front() == "version") args.front() = "--version";
  if (args.front() == "help") {
    args.erase(args.begin());
    args.emplace_back("--help");
  }
  return args;
}

std::string version_text() {
  const results::RunRecord made = experiment::collect_provenance();
  std::string text = fmt::format("kvarena {} ({})\n", KVARENA_VERSION, made.git_revision);
  const nlohmann::json libraries = nlohmann::json::parse(made.libraries_json);
  for (const auto& [name, version] : libraries.items()) {
    text += fmt::format("  {} {}\n", name, version.get<std::string>());
  }
  return text;
}

/// The libraries that KVARENA_PLUGINS and, anywhere among `args`, --plugin name; takes the latter away.
std::vector<std::filesystem::path> take_plugins(std::vector<std::string>& args) {
  std::vector<std::filesystem::path> paths = plugins_of_environment();
  constexpr std::string_view kOption = "--plugin";
  for (size_t i = 0; i < args.size() && args[i] != "--";) {
    const bool joined = args[i].starts_with("--plugin=");
    if (!joined && args[i] != kOption) {
      ++i;
      continue;
    }
    if (!joined && i + 1 == args.size()) {
      fail({.place = std::string(kOption), .found = "nothing", .expected = "a shared library or a Python file"});
    }
    paths.emplace_back(joined ? args[i].substr(kOption.size() + 1) : args[i + 1]);
    const auto begin = args.begin() + static_cast<std::ptrdiff_t>(i);
    args.erase(begin, begin + (joined ? 1 : 2));
  }
  return paths;
}

/// One problem is one sentence; several are a list below a sentence.
void print_problems(const std::string& message) {
  if (message.find('\n') == std::string::npos) {
    fmt::print(stderr, "kvarena: {}\n", message);
    return;
  }
  fmt::print(stderr, "kvarena: {} problems\n", std::ranges::count(message, '\n') + 1);
  for (size_t begin = 0; begin <= message.size();) {
    const size_t end = std::min(message.find('\n', begin), message.size());
    fmt::print(stderr, "  {}\n", message.substr(begin, end - begin));
    begin = end + 1;
  }
}

/// Libraries put stack traces into what(); people see its first line unless they ask.
void print_unexpected(const std::string& what) {
  const bool everything = std::getenv("KVARENA_DEBUG") != nullptr;
  fmt::print(stderr, "kvarena: stopped by an error that should not happen; please report it: {}\n",
             everything ? what : what.substr(0, what.find('\n')));
  if (!everything) fmt::print(stderr, "kvarena: KVARENA_DEBUG=1 in the environment shows all of it\n");
}

}  // namespace

Command root_command() {
  Command root{.name = "kvarena",
               .summary = "evaluates KV-cache methods on equal terms",
               .examples = {{"kvarena run configs/quickstart.json", "evaluate methods on a small real model"},
                            {"kvarena methods", "what can be evaluated"}}};
  const auto add = [&](const std::string& heading, std::vector<Command> commands) {
    commands.front().heading = heading;
    std::ranges::move(commands, std::back_inserter(root.commands));
  };
  add("Measure", {run_command(), status_command(), report_command(), compare_command(), history_command()});
  add("Reproduce", {papers_command(), estimate_command(), transfers_command()});
  add("Look inside",
      {inspect_command(), codecs_command(), reuse_command(), audit_command(), parity_command(), model_command()});
  add("Score", {judge_command(), score_command(), questions_command()});
  add("Serve", {serve_command(), store_command()});
  add("Extend", {new_method_command(), fit_command()});
  add("What there is", {methods_command(), workloads_command(), metrics_command(), schema_command()});
  add("Machines", {doctor_command(), submit_command(), merge_command(), completion_command()});
  add("Hidden", {worker_command()});
  return root;
}

int answer(const Command& root, const std::vector<std::string>& args) {
  const std::vector<std::string> words = as_options(args);
  const Invocation invocation = cli::bind(root, words);
  if (invocation.help) {
    print(help_page(*invocation.command, invocation.path));
    // A command line without a command is a question, answered; a script that forgot it should notice.
    const bool asked = std::ranges::any_of(words, [](const auto& word) { return word == "--help" || word == "-h"; });
    return asked ? 0 : kTrouble;
  }
  if (!invocation.version) return invocation.command->run();
  print(version_text());
  return 0;
}

int run_program(const std::vector<std::string>& args) {
  try {
    std::vector<std::string> words = args;
    load_plugins(take_plugins(words));  // before anything looks at the registry
    const int code = answer(root_command(), words);
    flush_output();
    return code;
  } catch (const LoggedError& error) {
    fmt::print(stderr, "kvarena: {}\n{}\n", error.what(), error.log());
  } catch (const UserError& error) {
    print_problems(error.what());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "kvarena: not enough memory\n");
  } catch (const std::system_error& error) {
    fmt::print(stderr, "kvarena: the system refuses: {}; `ulimit -a` shows its limits\n", error.what());
  } catch (const std::exception& error) {
    print_unexpected(error.what());
  }
  return kTrouble;
}

}  // namespace kvarena::cli
