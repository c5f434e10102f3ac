#pragma once
// Transfers from pinned memory to a CUDA device, measured. device_transfers.cpp is compiled where KVARENA_CUDA is ON,
// device_transfers_absent.cpp elsewhere.

#include <cstdint>

namespace kvarena::cli {

/// Seconds, medians of the repeats.
struct DeviceTransferTimes {
  double all = 0;       // every row, in one copy
  double chosen = 0;    // the chosen number of rows, adjoining, in one copy
  double gathered = 0;  // as many scattered rows, by one kernel
};

/// Times transfers of `rows` rows of row_bytes, and of `chosen` of them. Throws UserError where this program or this
/// machine has no device.
[[nodiscard]] DeviceTransferTimes time_device_transfers(int64_t rows, int64_t chosen, int64_t row_bytes,
                                                        int64_t repeats);

}  // namespace kvarena::cli
