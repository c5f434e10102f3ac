#pragma once
// Rows that travel by way of the hosts: the ranks' own channel, and pinned memory at both ends.

#include "harness/device/ranks/exchange.h"
#include "harness/device/workspace.h"
#include "harness/model/ranks/channel.h"

namespace kvarena::device {

/// Takes any devices, several ranks on one too, and waits for the stream each time.
class HostExchange final : public Exchange {
 public:
  /// The channel outlives this.
  explicit HostExchange(RankChannel& channel) : channel_(&channel) {}
  void exchange(std::span<const PeerBuffer> out, std::span<const PeerBuffer> in, kernels::CudaStream stream) override;

 private:
  RankChannel* channel_;
  PinnedWorkspace staged_;
};

}  // namespace kvarena::device
