#pragma once
// A rank that is not the driver: holds its rows of every matrix and computes what the driver orders.

#include "harness/model/checkpoint.h"
#include "harness/model/config.h"
#include "harness/model/ranks/channel.h"

namespace kvarena {

/// Loads the channel's share of the model, meets the other ranks and serves until the driver has no more orders. Throws
/// UserError when the share cannot be loaded, or a rank is lost.
void serve_rank(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype, RankChannel& channel);

}  // namespace kvarena
