// kvarena answers: what the program says alike on every machine, for harness/launcher to say it at once. Not for
// people.

#include <string>
#include <vector>

#include "harness/cli/commands.h"
#include "harness/cli/program.h"
#include "harness/cli/registry_text.h"
#include "harness/core/files.h"
#include "harness/terminal/kept_answers.h"
#include "metrics/registry.h"

namespace kvarena::cli {
namespace {

using Words = std::vector<std::string>;

struct Options {
  std::filesystem::path out;

  void declare(OptionSet& o) { o.option("out", "FILE", out).help("where to write").required(); }
};

Words followed_by(Words words, std::initializer_list<std::string> more) {
  words.insert(words.end(), more);
  return words;
}

/// Help for `command` and those below it, and a group alone, which answers with its help.
void ask_for_help(const Command& command, const Words& path, std::vector<Words>& questions) {
  questions.push_back(followed_by(path, {"--help"}));
  if (!command.run) questions.push_back(path);
  for (const Command& child : command.commands) {
    if (!child.hidden) ask_for_help(child, followed_by(path, {child.name}), questions);
  }
}

std::vector<Words> all_questions(const Command& root) {
  std::vector<Words> questions;
  ask_for_help(root, {}, questions);
  for (const char* list : {"methods", "metrics"}) {
    questions.push_back({list});
    questions.push_back({list, "--json"});
  }
  for (const Family family : kFamilies) questions.push_back({"methods", "--family", std::string(to_string(family))});
  for (const MethodEntry& entry : method_registry()) questions.push_back({"methods", entry.info.name});
  for (const MetricEntry* entry : all_metrics()) questions.push_back({"metrics", entry->id});
  return questions;
}

int run(const Options& options) {
  std::string text;
  for (const Words& words : all_questions(root_command())) {
    const Recording recording;
    const int code = answer(root_command(), words);  // made anew: options keep what they were given
    text += kept_answer_line(words, {recording.page(), code});
  }
  write_file(options.out, text);
  return 0;
}

}  // namespace

Command answers_command() {
  return make_command<Options>({.name = "answers",
                                .summary = "write what is answered alike on every machine",
                                .examples = {{"kvarena --help", "is answered from it"}},
                                .hidden = true},
                               run);
}

}  // namespace kvarena::cli
