#include "harness/core/error.h"
#include "harness/device/open_device.h"

namespace kvarena::device {
namespace {

[[noreturn]] void refuse(const std::string& place) {
  fail({.place = place,
        .found = "a program that was built without CUDA",
        .expected = "one built with -DKVARENA_CUDA=ON",
        .action = "build the preset \"cuda\""});
}

}  // namespace

std::unique_ptr<Offload> open_device(const std::string& place, const ModelConfig& /*config*/,
                                     const Checkpoint& /*checkpoint*/, const TransformerOptions& /*options*/,
                                     RankDriver* /*ranks*/) {
  refuse(place);
}

std::unique_ptr<RankDevice> open_rank_device(const ModelConfig& /*config*/, const Checkpoint& /*checkpoint*/,
                                             kernels::DType /*dtype*/, const Share& /*share*/) {
  refuse("the rank's device");
}

}  // namespace kvarena::device
