#pragma once
// Entries beside a layer's runs that stay on the device from pass to pass: what a choice has in common with the one
// before does not go up again.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/cache/segment.h"
#include "harness/device/host_selector.h"
#include "kernels/cells/cells_cuda.h"

namespace kvarena::device {

/// Memory for so many entries of each head: [kv_heads][keys, values][room].
struct SlotMemory {
  kernels::CudaBuffer memory;
  int64_t room = 0;

  void make_room(const LayerShape& shape, int64_t entries);
  [[nodiscard]] kernels::Cells cells(const LayerShape& shape, int64_t head, kernels::CellKind kind) const;
};

/// The differences of a layer's slots, of several sequences: one upload, and one kernel that merges it with what is
/// there.
class SlotUpdates {
 public:
  /// Queues all of it, once; returns the bytes of the entries that go up.
  int64_t send(kernels::CudaScratch& with, kernels::CudaStream stream);

 private:
  friend class DeviceSlots;
  struct Piece {
    kernels::EntryMerge merge;
    int64_t rows = 0, sources = 0;  // where its own begin
  };
  std::vector<std::byte> rows_;   // entry by entry
  std::vector<int32_t> sources_;  // as EntryMerge takes them
  std::vector<Piece> pieces_;
};

/// The slots of one layer and sequence, in the order in which they are attended to. An entry is known by its source and
/// its position there, or by its segment's version and its place in it: such segments only append under one version.
class DeviceSlots {
 public:
  /// Gives slots to the entries of `extras` and takes them from all others. From then on, behind the updates, their
  /// runs point to the device, with room for their fresh entries, of positions from `length` on. `spare` is the memory
  /// where the slots come to lie; it gets theirs.
  void take(std::span<ExtraRuns> extras, const LayerShape& shape, int64_t length, SlotMemory& spare,
            SlotUpdates& updates);
  [[nodiscard]] int64_t bytes() const { return now_.memory.bytes(); }

 private:
  /// An entry and its slot.
  struct Held {
    uint64_t source = 0;
    int32_t position = 0, slot = 0;
  };
  void place(ExtraRuns& extra, const LayerShape& shape, int64_t head, int64_t first, const SlotMemory& to,
             SlotUpdates& updates) const;

  SlotMemory now_;
  std::vector<std::vector<Held>> held_;  // [kv_heads], ascending by source and position
};

}  // namespace kvarena::device
