#pragma once
// A rank that is not the driver: holds its rows of every matrix and computes what the driver orders.

#include "harness/model/checkpoint.h"
#include "harness/model/config.h"
#include "harness/model/ranks/channel.h"

namespace kvarena {

/// A device beside a rank, which computes the rank's share where the driver has a device too.
class RankDevice {
 public:
  virtual ~RankDevice() = default;
  /// Agrees with the other ranks' devices on how rows travel between them; `channel` outlives this.
  virtual void meet(RankChannel& channel) = 0;
  /// Computes its share of a part, in the numbering of devices, for `rows` rows. Throws UserError when a rank is lost.
  virtual void compute(int64_t part, int64_t rows) = 0;
};

/// Loads the channel's share of the model, meets the other ranks and serves until the driver has no more orders. Throws
/// UserError when the share cannot be loaded, or a rank is lost.
void serve_rank(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype, RankChannel& channel,
                RankDevice* device = nullptr);

}  // namespace kvarena
