#pragma once
// A model on this machine's device. open_device.cpp is compiled where KVARENA_CUDA is ON, open_device_absent.cpp
// elsewhere.

#include <memory>
#include <string>

#include "harness/model/offload.h"

namespace kvarena::device {

/// All weights of the checkpoint on the device. `place` is what asked for it, for messages. Throws UserError with a
/// sentence where this program or this machine has no device, or the model does not fit.
[[nodiscard]] std::unique_ptr<Offload> open_device(const std::string& place, const ModelConfig& config,
                                                   const Checkpoint& checkpoint, const TransformerOptions& options);

}  // namespace kvarena::device
