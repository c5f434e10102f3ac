// kvarena worker: the process in which `kvarena run` evaluates one model. Not for people.

#include <fmt/format.h>
#include <sys/stat.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/worker_setup.h"
#include "harness/core/error.h"
#include "harness/experiment/workers/serve.h"

namespace kvarena::cli {
namespace {

struct Options {
  int64_t channel = -1;

  void declare(OptionSet& o) {
    o.option("channel", "N", channel).help("descriptor of the socket to the runner").required();
  }
};

experiment::Bench open_bench(const nlohmann::json& message) {
  const WorkerSetup setup = read_setup(message);
  experiment::Bench bench;
  bench.config = std::make_unique<const experiment::ExperimentConfig>(config_of(setup));
  bench.evaluator = std::make_unique<evaluate::ModelEvaluator>(model_evaluator(*bench.config, setup));
  return bench;
}

void check_channel(int64_t channel) {
  struct stat what {};
  if (::fstat(static_cast<int>(channel), &what) == 0 && S_ISSOCK(what.st_mode)) return;
  fail({.place = "--channel",
        .found = fmt::format("{}, which is no socket", channel),
        .action = "workers are started by `kvarena run`"});
}

int run(const Options& options) {
  check_channel(options.channel);
  experiment::serve(static_cast<int>(options.channel), open_bench);
  return 0;
}

}  // namespace

Command worker_command() {
  return make_command<Options>(
      {.name = "worker",
       .summary = "evaluate what `kvarena run` asks for on a socket",
       .examples = {{"kvarena run configs/quickstart.json", "starts workers as it needs them"}},
       .hidden = true},
      run);
}

}  // namespace kvarena::cli
