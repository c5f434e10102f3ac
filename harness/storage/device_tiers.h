#pragma once
// The device tier and the host tier of a machine with a CUDA device, and the bus between them: nothing is emulated.
//
// A library of its own (kvarena::storage_device), plain C++ over the host side of the kernels: who links it links the
// device's kernels beside it, or in tests the emulator.

#include <cstdint>
#include <memory>
#include <vector>

#include "harness/storage/link.h"
#include "harness/storage/storage.h"
#include "kernels/cells/cells_cuda.h"
#include "kernels/cuda/device.h"

namespace kvarena::storage {

/// A block that the device reaches by an address.
class PlacedBlock : public Block {
 public:
  [[nodiscard]] virtual std::byte* address() const = 0;
};

/// Blocks in the device's own memory. Reading and writing them wait for a copy over the bus.
class DeviceStorage final : public Storage {
 public:
  explicit DeviceStorage(int64_t capacity) : Storage(Tier::device, capacity) {}

 protected:
  [[nodiscard]] std::shared_ptr<Block> make_block(const LedgerPtr& ledger, int64_t bytes) override;
};

/// Blocks in pinned memory of the host, which the device copies at full speed and reads in place. A run on a device has
/// its host tier there (TierSettings::memory).
class PinnedStorage final : public Storage {
 public:
  explicit PinnedStorage(int64_t capacity) : Storage(Tier::host, capacity) {}

 protected:
  [[nodiscard]] std::shared_ptr<Block> make_block(const LedgerPtr& ledger, int64_t bytes) override;
};

/// Casts a block of these storages; asserts that it is one.
[[nodiscard]] std::shared_ptr<PlacedBlock> placed(const std::shared_ptr<Block>& block);

/// Bytes to copy from offset `from` of one block to offset `to` of the other.
struct BusPiece {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;
};

/// Moves bytes between placed blocks on a stream of its own, while kernels run on others. A transfer is complete when
/// its event on that stream is; a Link without emulation carries it, so that it may be waited for, cancelled before it
/// begins, and fails alone. Link times are those of the stream as the host sees them. Thread-safe as a Link is.
class Bus {
 public:
  explicit Bus(LinkFault fault = {});

  /// Moves contiguous memory: one copy a piece.
  [[nodiscard]] Transfer copy(const std::shared_ptr<const PlacedBlock>& from, const std::shared_ptr<PlacedBlock>& to,
                              std::vector<BusPiece> pieces);
  /// Row rows[i] of `from` (of row_bytes, a multiple of 32) becomes row i of `to`: one kernel, which reads pinned
  /// memory where it lies.
  [[nodiscard]] Transfer gather(const std::shared_ptr<const PlacedBlock>& from, const std::shared_ptr<PlacedBlock>& to,
                                const std::vector<int32_t>& rows, int64_t row_bytes);

  [[nodiscard]] const Link& link() const { return link_; }
  /// The stream of the transfers, for work that is to run after them.
  [[nodiscard]] kernels::CudaStream stream() const { return queue_.stream(); }

 private:
  /// Waits, on the link's thread, until the stream has done its work so far.
  void complete();

  kernels::CudaQueue queue_;
  kernels::CudaScratch scratch_;  // used by the link's thread
  kernels::CudaMark moved_;
  Link link_;  // destroyed first: its thread uses the other members
};

}  // namespace kvarena::storage
