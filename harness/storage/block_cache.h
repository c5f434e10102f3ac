#pragma once
// Entries of a layer in blocks behind the device, and the blocks used last on it as well.

#include <map>

#include "harness/cache/layer_cache.h"
#include "harness/storage/entry_store.h"

namespace kvarena::storage {

/// Blocks of equally many entries, numbered from 0. A block that is asked for and not held comes over the link; where
/// more than `held` would be on the device, those that were used longest ago go (of equals the lowest number), but for
/// the ones asked for.
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

  /// Sends entries first .. first + block - 1 of `from`, which follow the last block's, away. Returns while they are on
  /// their way. Throws TierFull, and what an earlier transfer failed with.
  void append(const EntrySegment& from, int64_t first);
  [[nodiscard]] int64_t blocks() const { return store_.entries() / options_.block; }

  /// Brings blocks, ascending numbers, and waits for them. Throws what the transfer failed with; then no block has come
  /// or gone.
  void use(const std::vector<int32_t>& blocks);
  /// A block that the last use() asked for; valid until the next.
  [[nodiscard]] const EntrySegment& entries_of(int32_t block) const { return *held_.at(block).entries; }
  /// Blocks on the device.
  [[nodiscard]] int64_t held() const { return static_cast<int64_t>(held_.size()); }

  [[nodiscard]] int64_t offloaded_bytes() const { return store_.offloaded_bytes(); }
  /// The transfer of the last use(): bytes, seconds on the link, seconds waited.
  [[nodiscard]] int64_t loaded_bytes() const { return loaded_bytes_; }
  [[nodiscard]] double link_seconds() const { return link_seconds_; }
  [[nodiscard]] double waited_seconds() const { return waited_seconds_; }

  /// Of the blocks on the device.
  [[nodiscard]] int64_t bytes() const override;
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override;

 private:
  struct Held {
    std::unique_ptr<EntrySegment> entries;
    int64_t used = 0;  // the use() that asked for it last
  };
  /// Lets blocks go until so many more may come.
  void make_room(const std::vector<int32_t>& wanted, int64_t more);
  void load(const std::vector<int32_t>& missing, const std::vector<int32_t>& wanted);

  LayerShape shape_;
  LedgerPtr ledger_;
  Options options_;
  HierarchyPtr tiers_;
  mutable EntryStore store_;  // cloning waits for what is on its way
  std::map<int32_t, Held> held_;
  int64_t uses_ = 0;
  int64_t loaded_bytes_ = 0;
  double link_seconds_ = 0;
  double waited_seconds_ = 0;
};

}  // namespace kvarena::storage
