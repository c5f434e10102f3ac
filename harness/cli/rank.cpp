// kvarena rank: a process that holds a share of a model which another one runs.

#include <fmt/format.h>

#include <charconv>

#include "harness/cli/commands.h"
#include "harness/core/error.h"
#include "harness/device/open_device.h"
#include "harness/model/ranks/rank_processes.h"
#include "harness/model/ranks/split_model.h"

namespace kvarena::cli {
namespace {

/// Parses "1/2".
Share parse_share(const std::string& text) {
  Share share;
  const char* end = text.data() + text.size();
  const auto [slash, error] = std::from_chars(text.data(), end, share.rank);
  if (error == std::errc{} && slash < end && *slash == '/') {
    const auto [after, wrong] = std::from_chars(slash + 1, end, share.ranks);
    if (wrong == std::errc{} && after == end) return share;
  }
  fail({.place = "--rank", .found = fmt::format("\"{}\"", text), .expected = "I/N, as 1/2"});
}

struct Options {
  std::string join;
  std::string rank;
  std::filesystem::path model;
  int64_t threads = 0;

  void declare(OptionSet& o) {
    o.option("join", "HOST:PORT", join).help("where the model runs: `ranks_at` of its entry in the config").required();
    o.option("rank", "I/N", rank)
        .help("which of N ranks; rank 0 is the program that runs the model, so I is from 1 to N-1")
        .required();
    o.option("model", "NAME|PATH", model)
        .help("the checkpoint on this machine")
        .default_text("where the driver has it");
    o.option("threads", "N", threads).help("of this rank").default_text("one for each core");
  }
};

int run(const Options& options) {
  if (options.threads < 0) {
    fail({.place = "--threads", .found = fmt::format("{}", options.threads), .expected = "0 or more"});
  }
  run_rank({.share = parse_share(options.rank),
            .join = options.join,
            .checkpoint = options.model,
            .threads = options.threads,
            .open_device = device::open_rank_device});
  return 0;
}

struct LocalOptions {
  std::filesystem::path meet;
  std::string rank;
  int64_t driver = 0;

  void declare(OptionSet& o) {
    o.option("meet", "FILE", meet).help("where the ranks of this machine find each other").required();
    o.option("rank", "I/N", rank).help("which of N ranks").required();
    o.option("driver", "PID", driver).help("the process that started this one, and ends it").required();
  }
};

int run_local(const LocalOptions& options) {
  die_with(static_cast<pid_t>(options.driver));
  run_rank({.share = parse_share(options.rank), .meet = options.meet, .open_device = device::open_rank_device});
  return 0;
}

}  // namespace

Command rank_command() {
  return make_command<Options>(
      {.name = "rank",
       .summary = "hold a share of a model that another machine runs",
       .description = "A model whose entry in a config says `\"tensor_parallel\": N` is shared by N processes: "
                      "the one that runs it and N-1 ranks, which it starts on its own machine. With "
                      "`\"ranks_at\": \"HOST:PORT\"` beside it, it waits there for ranks that are started by this "
                      "command, on any machine that has the checkpoint. A rank reads its rows of the weights "
                      "only, and ends when the model's cells are done or the process that runs it is gone; the "
                      "one that takes its place waits for ranks anew, so start them in a loop. Whoever can "
                      "reach the port can join: use it in a network that is trusted. GLOO_SOCKET_IFNAME names "
                      "the interface where the host name does not. Where the entry says `\"device\": \"cuda\"` each "
                      "rank needs a device: those of a machine take its devices in turn, and rows go between them by "
                      "NCCL where the loader finds libnccl.so.2.",
       .examples = {{"kvarena rank --join node1:29500 --rank 1/4", "the second of four"},
                    {"kvarena rank --join node1:29500 --rank 1/4 --model llama-3.3-70b-instruct",
                     "a folder of KVARENA_HOME/models"}}},
      run);
}

Command local_rank_command() {
  return make_command<LocalOptions>(
      {.name = "local-rank",
       .summary = "hold a share of a model that another process of this machine runs",
       .examples = {{"kvarena model generate --tensor-parallel 2 --prompt Hello", "starts one"}},
       .hidden = true},
      run_local);
}

}  // namespace kvarena::cli
