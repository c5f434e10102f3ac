// kvarena model pull: a model of Hugging Face's hub into its cache, by the hub's own program.

#include <fmt/format.h>

#include "harness/cli/commands.h"
#include "harness/cli/spawn.h"
#include "harness/core/error.h"
#include "harness/core/home.h"
#include "harness/core/own_files.h"
#include "harness/core/page.h"
#include "harness/core/terminal.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::string model;

  void declare(OptionSet& o) { o.positional("ORG/NAME", model).help("name on the hub, or ORG/NAME@REVISION"); }
};

int run(const Options& options) {
  const size_t at = options.model.find('@');
  const std::string name = options.model.substr(0, at);
  if (name.find('/') == std::string::npos || !is_hub_name(name)) {
    fail({.place = "ORG/NAME",
          .found = fmt::format("\"{}\"", options.model),
          .expected = "a name on Hugging Face's hub",
          .action = setup_command() + " brings the default model, " + setup_command() + " --gemma Gemma 3 270M"});
  }
  std::vector<std::string> words{"hf", "download", name};
  if (at != std::string::npos) words.insert(words.end(), {"--revision", options.model.substr(at + 1)});
  const int code = spawn({.words = words});
  if (code == 127) {
    fail({.place = "hf",
          .found = "no such program",
          .expected = "the program of the Python package huggingface_hub",
          .action = fmt::format("`pip install huggingface_hub`, then `{}`", fmt::join(words, " "))});
  }
  const auto snapshot = hub_snapshot(options.model);
  if (code != 0 || !snapshot) {
    fail({.place = fmt::format("`{}`", fmt::join(words, " ")),
          .found = fmt::format("exit code {}", code),
          .expected = fmt::format("{} in the hub's cache", options.model)});
  }
  print(fmt::format("{}\n`kvarena model check {}` says what it can be used for\n", snapshot->string(), options.model));
  return 0;
}

}  // namespace

Command model_pull_command() {
  return make_command<Options>({.name = "pull",
                                .summary = "fetch a model of Hugging Face's hub into its cache",
                                .examples = {{"kvarena model pull Qwen/Qwen3-0.6B", "then --model Qwen/Qwen3-0.6B"}}},
                               run);
}

}  // namespace kvarena::cli
