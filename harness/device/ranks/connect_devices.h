#pragma once
// The devices of a model's ranks agree on how rows travel between them.

#include <memory>
#include <string>

#include "harness/device/ranks/exchange.h"
#include "harness/device/ranks/nccl_library.h"
#include "harness/model/ranks/channel.h"

namespace kvarena::device {

struct Transport {
  std::unique_ptr<Exchange> exchange;
  /// Why rows go by way of the hosts; empty where they do not. Known to the driver alone.
  std::string fallback_reason;
};

/// All ranks at the same time, over the channel, which outlives the exchange. NCCL carries rows where every rank has it
/// and a device that is no other's, the hosts elsewhere. `nccl` is null where this machine has none, for `reason`.
[[nodiscard]] Transport connect_devices(RankChannel& channel, std::shared_ptr<const NcclLibrary> nccl,
                                        const std::string& reason);

}  // namespace kvarena::device
