#pragma once
// A layer whose entries lie on a tier behind the device, but for those that are attended. Xu et al. 2025,
// arXiv:2512.00722, section 5.4 (elastic loading).

#include "harness/cache/entry_source.h"
#include "harness/cache/layer_cache.h"
#include "harness/storage/entry_store.h"

namespace kvarena::storage {

/// Each kv head has slots on the device. Selected entries that lie in no slot are loaded over the link and replace
/// those no longer selected: S_now \ S_last takes the place of S_last \ S_now. Without `elastic` all selected entries
/// are loaded anew. Slots stay in the order of positions, which costs a copy on the device and makes attention read the
/// same bits in the same order either way, and as if the layer had never left.
///
/// Not thread-safe; belongs to one request.
class SlotCache final : public LayerIndex, public EntrySource {
 public:
  struct Options {
    Tier tier = Tier::host;
    bool elastic = true;
  };
  /// Ascending positions: one list a kv head, or one a query head.
  using Lists = std::vector<std::vector<int32_t>>;

  /// Throws UserError when there is no such tier.
  SlotCache(const LayerShape& shape, const LedgerPtr& ledger, HierarchyPtr tiers, const Options& options);

  /// Offloads the tail's entries, which follow those offloaded before, and removes them from the tail. Returns while
  /// they are on their way. Throws TierFull, and the error of an earlier transfer that failed.
  void offload(EntrySegment& tail);
  /// Waits until everything offloaded has arrived.
  void settle() { store_.settle(); }
  /// Begins to load entries that are wanted and in no slot. Positions are below sent(), but for the next one, which
  /// will be the only entry of the tail, now or when it is offloaded.
  void prefetch(Lists wanted);
  /// Waits for the entries of prefetch() and returns a view of all wanted ones. Must be called once after it; the view
  /// lasts until the next prefetch(). Where the tail has not got its entry yet, the view's lists name its slot behind
  /// the others, which offload() fills.
  [[nodiscard]] std::unique_ptr<Segment> arrive(const EntrySegment& tail);

  /// Entries of each head in the tier.
  [[nodiscard]] int64_t sent() const { return store_.entries(); }
  [[nodiscard]] int64_t offloaded_bytes() const { return store_.offloaded_bytes(); }
  /// The load of the last arrive().
  [[nodiscard]] const Traffic& loaded() const { return loaded_; }

  [[nodiscard]] uint64_t source_of(const Segment& shown) const override { return &shown == &slots_ ? source_ : 0; }
  /// Bytes of slots and arriving rows.
  [[nodiscard]] int64_t bytes() const override { return slots_.bytes() + rows_.bytes(); }
  /// Copies the cache; allowed between arrive() and prefetch().
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override;

 private:
  /// The wanted positions of a kv head over all its lists, ascending.
  [[nodiscard]] std::vector<int32_t> wanted_of(int64_t kv_head) const;
  /// Refills the slots with the wanted entries, from the slots, the rows that arrived and the tail.
  void place_in_slots(const EntrySegment& tail);

  LayerShape shape_;
  LedgerPtr ledger_;
  Options options_;
  HierarchyPtr tiers_;
  mutable EntryStore store_;  // a clone waits for what is on its way
  EntrySegment slots_;
  uint64_t source_ = new_version();
  std::vector<int64_t> awaiting_;  // kv heads that wanted the tail's entry before it was there
  Lists wanted_;                   // positions wanted by the pass under way
  Lists missing_;                  // [kv_heads] positions asked for, ascending
  Buffer rows_;                    // where entries arrive
  Transfer transfer_;              // destroyed before the rows
  Traffic loaded_;
};

}  // namespace kvarena::storage
