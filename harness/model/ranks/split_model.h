#pragma once
// A model divided among ranks: starting its ranks or waiting for them, and the work of a rank's process.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/model/ranks/channel.h"
#include "harness/model/ranks/server.h"
#include "kernels/common/dtype.h"

namespace kvarena {

struct SplitModel {
  int64_t ranks = 1;
  /// HOST:PORT of this machine, where ranks that others start are waited for; empty: they are started here.
  std::string listen;
  std::filesystem::path checkpoint;  // as open_model() takes it
  kernels::DType weights = kernels::DType::bf16;
  bool devices = false;  // every rank has one beside it
  /// The program whose subcommand `local-rank` calls run_rank().
  std::string program = "/proc/self/exe";
};

/// Threads of one process on a machine that has `all` threads for this many ranks.
[[nodiscard]] inline int threads_each(int all, int64_t ranks) {
  return static_cast<int>(std::max<int64_t>(1, all / ranks));
}

/// Starts ranks, or listens for them, and returns at once, so that all load their shares at the same time. Null for one
/// rank. Ranks that are started here have as many OpenMP threads as this process has now, and end with the channel.
/// Throws UserError.
[[nodiscard]] std::unique_ptr<RankChannel> gather_ranks(const SplitModel& model);

/// Makes the device of a rank.
using OpenRankDevice =
    std::function<std::unique_ptr<RankDevice>(const ModelConfig&, const Checkpoint&, kernels::DType, const Share&)>;

/// The command line of a rank's process.
struct RankOptions {
  Share share;
  std::string join;                  // HOST:PORT of the driver; or
  std::filesystem::path meet;        // the file of a driver on this machine
  std::filesystem::path checkpoint;  // empty: where the driver has it, also relative to KVARENA_HOME
  int64_t threads = 0;               // 0: as the driver says, or, after `join`, one for each core
  OpenRankDevice open_device;        // called where the driver has a device
};

/// Loads the rank's share and serves until the driver is done. Throws UserError, which the driver has received too.
void run_rank(const RankOptions& options);

}  // namespace kvarena
