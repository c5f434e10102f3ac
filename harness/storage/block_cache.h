#pragma once
// A layer's entries in blocks on a tier behind the device; the most recently used blocks lie on the device too.

#include <map>

#include "harness/cache/layer_cache.h"
#include "harness/storage/entry_store.h"

namespace kvarena::storage {

/// Blocks of equally many entries, numbered from 0. A block that is asked for and not held comes over the link; where
/// more than `held` would be on the device, the least recently used ones are dropped (among equals the lowest number),
/// but for the ones asked for.
///
/// Not thread-safe; belongs to one request.
class BlockCache final : public LayerIndex {
 public:
  struct Options {
    Tier tier = Tier::host;
    int64_t block = 128;  // entries
    int64_t held = 32;    // blocks on the device
    int64_t first = 0;    // position of the first block's first entry
  };

  /// Throws UserError when there is no such tier.
  BlockCache(const LayerShape& shape, const LedgerPtr& ledger, HierarchyPtr tiers, const Options& options);

  /// Offloads entries first .. first + block - 1 of `from`, which follow the last block's. Returns while they are on
  /// their way. Throws TierFull, and the error of an earlier transfer that failed.
  void append(const EntrySegment& from, int64_t first);
  [[nodiscard]] int64_t blocks() const { return store_.entries() / options_.block; }

  /// Loads blocks, ascending numbers, and waits for them. Throws the transfer's error; then the blocks on the device
  /// are those from before.
  void use(const std::vector<int32_t>& blocks);
  /// Entries of a block that the last use() asked for; valid until the next.
  [[nodiscard]] const EntrySegment& entries_of(int32_t block) const { return *held_.at(block).entries; }
  /// Entries of all blocks on the device.
  [[nodiscard]] std::vector<const Segment*> held_entries() const;
  /// Blocks on the device.
  [[nodiscard]] int64_t held() const { return static_cast<int64_t>(held_.size()); }

  [[nodiscard]] int64_t offloaded_bytes() const { return store_.offloaded_bytes(); }
  /// The load of the last use().
  [[nodiscard]] const Traffic& loaded() const { return loaded_; }

  /// Bytes of the blocks on the device.
  [[nodiscard]] int64_t bytes() const override;
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override;

 private:
  struct Held {
    std::unique_ptr<EntrySegment> entries;
    int64_t used = 0;  // number of the use() that asked for it last
  };
  /// Drops blocks until so many more may be loaded.
  void make_room(const std::vector<int32_t>& wanted, int64_t more);
  void load(const std::vector<int32_t>& missing, const std::vector<int32_t>& wanted);

  LayerShape shape_;
  LedgerPtr ledger_;
  Options options_;
  HierarchyPtr tiers_;
  mutable EntryStore store_;  // cloning waits for what is on its way
  std::map<int32_t, Held> held_;
  int64_t uses_ = 0;
  Traffic loaded_;
};

}  // namespace kvarena::storage
