#pragma once
// A model on this machine's device. open_device.cpp is compiled where KVARENA_CUDA is ON, open_device_absent.cpp
// elsewhere.

#include <memory>
#include <string>

#include "harness/model/offload.h"
#include "harness/model/ranks/server.h"

namespace kvarena::device {

/// All weights of the checkpoint on the device; with `ranks`, which outlives it, the share of rank 0, when those of the
/// others have met. Says on standard error when their rows take the long way. `place` is what asked for it, for
/// messages. Throws UserError with a sentence where this program or this machine has no device, or the model does not
/// fit.
[[nodiscard]] std::unique_ptr<Offload> open_device(const std::string& place, const ModelConfig& config,
                                                   const Checkpoint& checkpoint, const TransformerOptions& options,
                                                   RankDriver* ranks = nullptr);

/// A share of the weights, for a rank that is not the driver, on a device of its own where the machine has as many:
/// ranks take them in turn. Throws as open_device().
[[nodiscard]] std::unique_ptr<RankDevice> open_rank_device(const ModelConfig& config, const Checkpoint& checkpoint,
                                                           kernels::DType dtype, const Share& share);

}  // namespace kvarena::device
