#pragma once
// All entries of a layer, exact, on a tier behind the device, as attention reads them: a layer is loaded as a whole.

#include <functional>
#include <span>

#include "harness/cache/entry_segment.h"
#include "harness/storage/hierarchy.h"

namespace kvarena::storage {

/// Begins to copy entries [kv_heads] to yet another place; gives what waits until they are there.
using Further = std::function<std::function<void()>(std::span<const kernels::HeadRun> heads)>;

/// Cells of keys and values, one head behind the other, so that both ways are copies of memory. Not thread-safe;
/// belongs to one request. Its bytes are counted in the ledger's tier.
class CellStore {
 public:
  /// Throws UserError when there is no such tier.
  CellStore(const LayerShape& shape, LedgerPtr ledger, HierarchyPtr tiers, Tier tier);

  [[nodiscard]] const LayerShape& shape() const { return shape_; }
  [[nodiscard]] int64_t entries() const { return entries_; }
  /// Bytes that load() moves, and that it takes of the device: a segment's memory grows by more than it needs.
  [[nodiscard]] int64_t bytes() const;
  [[nodiscard]] int64_t device_bytes() const;

  /// Writes the entries of a dense segment from `first` <= entries() on, in whole cells, over what was there from there
  /// on. `from` must not change before the transfer is complete. Throws TierFull.
  [[nodiscard]] Transfer write(const EntrySegment& from, int64_t first);
  /// Makes `to`, an empty segment that nobody else uses before the transfer is complete, hold all entries. Its memory
  /// is taken when the transfer begins. The store must not be written to meanwhile. `further` takes the entries on,
  /// from where they lie in the tier if that is main memory, and is part of the transfer; on the link's thread.
  [[nodiscard]] Transfer load(EntrySegment& to, Further further = {}) const;

 private:
  [[nodiscard]] int64_t cell_bytes() const;
  [[nodiscard]] int64_t runs() const { return 2 * shape_.kv_heads; }
  /// Takes a block with room for at least so many cells of each run; the first `kept` move to it within the tier.
  void grow(int64_t cells, int64_t kept);

  LayerShape shape_;
  LedgerPtr ledger_;
  HierarchyPtr tiers_;
  Tier tier_;
  std::shared_ptr<Block> block_;  // [kv_heads][keys, values][room_] cells
  int64_t room_ = 0;
  int64_t entries_ = 0;   // of each head
  int64_t position_ = 0;  // of the first
};

}  // namespace kvarena::storage
