#pragma once
// All entries of a layer, or their values, exact, on a tier behind the device; selected ones are loaded over its link.

#include "harness/cache/entry_segment.h"
#include "harness/storage/hierarchy.h"

namespace kvarena::storage {

/// Content of an entry's row, in the cache's dtype.
enum class RowContent { key_and_value, value };

/// Rows [key | value] or [value], one a token and kv head, so that an entry is one piece on the link. A row is
/// addressed by its token's original position; positions are appended in order from `first`.
///
/// Not thread-safe; belongs to one request. Its bytes are counted in the ledger's tier.
class EntryStore {
 public:
  /// Throws UserError when there is no such tier.
  EntryStore(const LayerShape& shape, LedgerPtr ledger, HierarchyPtr tiers, Tier tier, int64_t first = 0,
             RowContent content = RowContent::key_and_value);

  /// Entries held of each head; the position appended next is `first` plus this.
  [[nodiscard]] int64_t entries() const { return entries_; }
  /// Offloads `count` entries of `from`, beginning with `first`; they have the positions that follow. Returns while
  /// they are on their way. Throws TierFull, and the error of an earlier offload that failed.
  void append(const EntrySegment& from, int64_t first, int64_t count);
  /// Waits until everything appended has arrived. Throws the error of an offload that failed.
  void settle();
  /// Bytes that append() has sent over the link.
  [[nodiscard]] int64_t offloaded_bytes() const { return offloaded_bytes_; }

  [[nodiscard]] int64_t row_bytes() const;
  /// Loads rows of the given positions, [kv_heads] ascending lists, to `rows`: heads one after another. Waits for an
  /// offload only when one of these rows is still on its way. Throws the error of an offload that failed.
  [[nodiscard]] Transfer load(const std::vector<std::vector<int32_t>>& positions, std::byte* rows);

  /// Copies the entries, counted in another ledger. Waits for offloads under way.
  [[nodiscard]] std::unique_ptr<EntryStore> clone(const LedgerPtr& ledger);

 private:
  /// Numbers of a row.
  [[nodiscard]] int64_t row_width() const;
  void grow(int64_t entries);
  /// Offset in the block of the row'th entry's row, in bytes.
  [[nodiscard]] int64_t row_offset(int64_t kv_head, int64_t row) const;

  LayerShape shape_;
  LedgerPtr ledger_;
  HierarchyPtr tiers_;
  Tier tier_;
  int64_t first_;
  RowContent content_;
  std::shared_ptr<Block> block_;  // [kv_heads, room_, row]
  int64_t room_ = 0;              // entries of a head that the block can take
  int64_t entries_ = 0;
  int64_t arrived_ = 0;  // entries of a head that have arrived
  int64_t offloaded_bytes_ = 0;
  Buffer leaving_;    // source of the offload under way
  Transfer offload_;  // destroyed before the buffer
};

/// Numbers of `count` rows [width] as load() gives them.
[[nodiscard]] std::vector<float> numbers_of(const std::byte* rows, int64_t count, int64_t width, DType dtype);
/// Appends rows as load() gives them, [count, key | value], to `to` as entries of one head.
void append_rows(const LayerShape& shape, const std::byte* rows, std::span<const int32_t> positions, int64_t kv_head,
                 EntrySegment& to);

}  // namespace kvarena::storage
