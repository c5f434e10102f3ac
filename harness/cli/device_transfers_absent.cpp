#include "harness/cli/device_transfers.h"
#include "harness/core/error.h"

namespace kvarena::cli {

DeviceTransferTimes time_device_transfers(int64_t /*rows*/, int64_t /*chosen*/, int64_t /*row_bytes*/,
                                          int64_t /*repeats*/) {
  fail({.place = "--device",
        .found = "a program that was built without CUDA",
        .expected = "one built with -DKVARENA_CUDA=ON",
        .action = "build the preset \"cuda\""});
}

}  // namespace kvarena::cli
