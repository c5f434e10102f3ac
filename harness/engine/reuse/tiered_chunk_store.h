#pragma once
// Chunks on a tier behind the device.

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "harness/engine/reuse/chunk_store.h"
#include "harness/storage/cell_store.h"

namespace kvarena {

/// Keeps chunks on a tier, in the cells that attention reads. A chunk that is found crosses the tier's link, transfers
/// of all layers queued before the first is waited for, and nobody else waits meanwhile; bits stay. A chunk that is put
/// has arrived when put() returns.
class TieredChunkStore final : public ChunkStore {
 public:
  /// Throws UserError when the machine has no such tier.
  TieredChunkStore(storage::HierarchyPtr machine, Tier tier);

  /// Nothing is forgotten here.
  [[nodiscard]] std::shared_ptr<const void> hold(const std::string& key) override { return chunk_of(key); }
  /// Throws UserError when the tier cannot give what it holds.
  [[nodiscard]] ChunkCache find(const std::string& key) override;
  /// Throws TierFull when there is no room.
  void put(const std::string& key, ChunkCache chunk) override;
  /// Bytes of all chunks on the tier.
  [[nodiscard]] int64_t bytes() const;

 private:
  using Chunk = std::vector<storage::CellStore>;  // by layer

  /// Null where there is none.
  [[nodiscard]] std::shared_ptr<const Chunk> chunk_of(const std::string& key) const;

  storage::HierarchyPtr machine_;
  Tier tier_;
  LedgerPtr ledger_ = std::make_shared<MemoryLedger>();
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Chunk>> chunks_;  // guarded by mutex_
};

}  // namespace kvarena
