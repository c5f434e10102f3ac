#pragma once
// A model on this machine's devices. open_device.cpp is compiled where KVARENA_CUDA is ON, open_device_absent.cpp
// elsewhere.

#include <memory>
#include <string>
#include <vector>

#include "harness/model/offload.h"
#include "harness/storage/storage.h"

namespace kvarena::device {

/// All weights of the checkpoint on the devices of these numbers, whose free memory decides how many layers each has;
/// none: on the first ones, as few as hold the model with room for a cache. Says on standard error how layers are
/// divided where they are. `place` is what asked for it, for messages. Throws UserError with a sentence where this
/// program or this machine has no such device, or the model does not fit.
[[nodiscard]] std::unique_ptr<Offload> open_device(const std::string& place, const ModelConfig& config,
                                                   const Checkpoint& checkpoint, const TransformerOptions& options,
                                                   const std::vector<int64_t>& devices);

/// A host tier's memory for runs on devices, which copy from it at full speed: pinned, unless this program has none.
[[nodiscard]] std::unique_ptr<storage::Storage> pinned_memory(int64_t capacity);

}  // namespace kvarena::device
