#pragma once
// Entries whose keys lack some channels, each head its own.

#include <span>

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// The oldest entries of each head: values whole, of keys the listed channels alone. For attention these go to their
/// places, a chunk of entries at a time, with 0 where a channel is missing.
class PrunedKeySegment final : public Segment {
 public:
  /// [kv_heads] channels that a head's keys keep, ascending, of all heads as many.
  using Channels = std::vector<std::vector<int32_t>>;
  /// The first counts[kv_head] entries of each head of `from`, with channels[kv_head].
  PrunedKeySegment(const EntrySegment& from, std::span<const int64_t> counts, const Channels& channels,
                   LedgerPtr ledger);

  /// Appends the first counts[kv_head] entries of each head of `from`, which are newer than those here.
  void append(const EntrySegment& from, std::span<const int64_t> counts);

  [[nodiscard]] std::span<const uint16_t> channels(int64_t kv_head) const { return heads_[kv_head].channels; }

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return heads_[kv_head].entries; }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  [[nodiscard]] int64_t bytes() const override;
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;
  void mark(const LedgerPtr& held) override;
  void rewind() override;

 private:
  struct Head {
    explicit Head(const LedgerPtr& ledger)
        : positions(LedgerAllocator<int32_t>(ledger)), channels(LedgerAllocator<uint16_t>(ledger)) {}
    Buffer keys;    // [cells, channels, 16]
    Buffer values;  // [cells, 16, head_dim]
    int64_t entries = 0;
    int64_t marked = 0;               // entries at mark()
    int32_t first_position = 0;       // of one run
    LedgerVector<int32_t> positions;  // empty while the entries are one run
    LedgerVector<uint16_t> channels;
  };

  PrunedKeySegment(const PrunedKeySegment& from, const LedgerPtr& ledger);
  /// Takes memory for so many entries of a head.
  void resize(Head& head, int64_t entries);
  /// Adds the positions of the first `count` entries of a head of `from`.
  void append_positions(Head& head, const EntrySegment& from, int64_t kv_head, int64_t count) const;
  /// Lists the channels that are kept, among kv_heads * head_dim.
  [[nodiscard]] std::vector<int32_t> places() const;

  LedgerPtr ledger_;
  std::vector<Head> heads_;  // [kv_heads]
};

}  // namespace kvarena
