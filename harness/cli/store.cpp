// kvarena store: memory for caches that a run in another process fetches over a socket.

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "harness/cli/commands.h"
#include "harness/core/error.h"
#include "harness/core/page.h"
#include "harness/core/terminal.h"
#include "harness/experiment/runner.h"
#include "harness/storage/remote/store_server.h"

namespace kvarena::cli {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;

struct Options {
  std::string listen = "127.0.0.1:8100";
  int64_t memory_mib = 4096;

  void declare(OptionSet& o) {
    o.option("listen", "ADDRESS", listen).help("HOST:PORT of this machine, port 0: any that is free; or a path");
    o.option("memory-mib", "N", memory_mib).help("room for the caches of all runs");
  }
};

int run(const Options& options) {
  if (options.memory_mib < 1 || options.memory_mib > int64_t{1} << 30) {
    fail({.place = "--memory-mib", .found = fmt::format("{}", options.memory_mib), .expected = "from 1 to 1073741824"});
  }
  const experiment::InterruptGuard guard("ending; once more stops at once");
  storage::StoreServer server(options.listen, options.memory_mib * kMebi);
  print(fmt::format("{}\n", server.address()));
  flush_output();
  while (!experiment::InterruptGuard::flag()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const storage::StoreTotals totals = server.totals();
  print(fmt::format("{} bytes sent in {} reads\n", totals.bytes, totals.reads));
  return 0;
}

}  // namespace

Command store_command() {
  return make_command<Options>(
      {.name = "store",
       .summary = "hold prompts' caches for runs in other processes, behind a socket",
       .description =
           "Runs whose config says remote_prefix.store write their prompts' caches here, full and compressed, and load "
           "them over the socket: as fast as it goes, or at the rates of the config, which are held by who sends. "
           "A cache lives as long as its run. Prints the address, and serves until SIGINT or SIGTERM.",
       .examples = {{"kvarena store --memory-mib 2048", "2 GiB at 127.0.0.1:8100"},
                    {"kvarena store --listen ./store.sock", "a Unix socket"},
                    {"kvarena run configs/remote_prefix.json --set remote_prefix.store=127.0.0.1:8100",
                     "a run whose caches lie there"}}},
      run);
}

}  // namespace kvarena::cli
