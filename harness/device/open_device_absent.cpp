#include "harness/core/error.h"
#include "harness/device/open_device.h"

namespace kvarena::device {

std::unique_ptr<Offload> open_device(const std::string& place, const ModelConfig& /*config*/,
                                     const Checkpoint& /*checkpoint*/, const TransformerOptions& /*options*/,
                                     const std::vector<int64_t>& /*devices*/) {
  fail({.place = place,
        .found = "a program that was built without CUDA",
        .expected = "one built with -DKVARENA_CUDA=ON",
        .action = "build the preset \"cuda\""});
}

std::unique_ptr<storage::Storage> pinned_memory(int64_t capacity) {
  return std::make_unique<storage::MemoryStorage>(Tier::host, capacity);
}

}  // namespace kvarena::device
