#pragma once
// Entries in 16 or 32 bits: dense while every head holds one contiguous run, ragged once heads keep their own.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "harness/cache/attention_plan.h"
#include "harness/cache/entry_changes.h"

namespace kvarena {

/// Growable storage of full-precision entries. Each kv head owns its keys and values in cells of 16 entries
/// (kernels/attention says how a cell is laid out); memory is taken cell by cell, so that what is allocated exceeds
/// what is held by at most 15 entries or 1/64 of the head, whichever is larger.
///
/// Not thread-safe; a segment belongs to one request.
class EntrySegment final : public Segment {
 public:
  EntrySegment(const LayerShape& shape, LedgerPtr ledger);
  ~EntrySegment() override;
  EntrySegment(EntrySegment&&) noexcept;
  EntrySegment& operator=(EntrySegment&&) noexcept;

  /// Appends n tokens to every head. keys, values [n, kv_heads, head_dim] with `stride` floats between tokens;
  /// the first has original position `position`.
  void append(const float* keys, const float* values, int64_t n, int64_t stride, int64_t position);
  /// Appends entries first .. first+count-1 of `from` (same shape), bits and positions unchanged.
  void append_entries(const EntrySegment& from, int64_t first, int64_t count);
  /// Entries of one head as save() wrote them.
  struct SavedHead {
    std::vector<int32_t> positions;  // of a head that holds its own
    int64_t count = 0;
    std::span<const std::byte> bytes;  // saved_bytes(count) of them, of any alignment
  };
  /// Bytes that `count` entries of a head take at rest: those of their numbers.
  [[nodiscard]] int64_t saved_bytes(int64_t count) const;
  /// Writes entries first .. first+count-1 of a head as cells lie in memory, keys and then values; the last cell is as
  /// wide as it is full. `to` has saved_bytes(count) bytes.
  void save(int64_t kv_head, int64_t first, int64_t count, std::span<std::byte> to) const;
  /// Appends to every head what save() wrote, bits unchanged. `position` is that of each head's first; without it heads
  /// hold their own, and the segment is ragged from then on.
  void append_saved(std::span<const SavedHead> heads, std::optional<int64_t> position);
  /// Appends entries to one head: ascending positions, keys and values [positions.size(), head_dim] with `stride`
  /// floats between entries. The segment is ragged from then on.
  void append_to_head(int64_t kv_head, std::span<const int32_t> positions, const float* keys, const float* values,
                      int64_t stride);
  /// Forgets the newest entries of every head until it holds `n`. Memory is released cell by cell.
  void truncate(int64_t n);
  /// Keeps the listed entries of each head: kept[kv_head] ascending indices. The rest is really released, and the
  /// segment is ragged from then on. Remembered numbers are gathered along.
  void keep(std::span<const std::vector<int32_t>> kept);
  /// Writes n tokens over entries first .. first+n-1 of every head; keys and values as append() takes them, and the
  /// same bits.
  void replace(int64_t first, const float* keys, const float* values, int64_t n, int64_t stride);
  /// Turns the keys of entries first .. first+count-1 of every head by the angle whose cosines and sines are given
  /// [half] (kernels/rope): what moving them to another position needs. Positions stay.
  void rotate_keys(int64_t first, int64_t count, std::span<const float> cos, std::span<const float> sin);
  /// Replaces an entry's key and value [head_dim], what is null stays: merging.
  void overwrite(int64_t kv_head, int64_t entry, const float* key, const float* value);
  /// Makes an entry that of `from` (same shape), bits and position; entry = entries(kv_head) appends it. Heads hold
  /// their own from then on, in any order. Nothing may be remembered.
  void replace(int64_t kv_head, int64_t entry, const EntrySegment& from, int64_t from_entry);
  /// Removes the first n entries of every head.
  void drop_front(int64_t n);

  /// The record of entries dropped, taken back and rewritten since an observer marked it. Appending to all heads leaves
  /// version() as it is, as do the recorded changes: keep(), overwrite(), and truncate() of a dense segment.
  [[nodiscard]] EntryChanges& changes() { return changes_; }
  [[nodiscard]] const EntryChanges& changes() const { return changes_; }

  /// Remembers `width` numbers with every entry from now on (running scores of a method), gathered with the entries and
  /// counted as memory. They start at 0, also those of new entries.
  void reserve_scores(int64_t width);
  /// Numbers remembered with every entry, 0 until asked for.
  [[nodiscard]] int64_t score_width() const { return score_width_; }
  /// [entries, score_width] of a head.
  [[nodiscard]] std::span<float> entry_scores(int64_t kv_head) { return heads_[kv_head].scores; }
  [[nodiscard]] std::span<const float> entry_scores(int64_t kv_head) const { return heads_[kv_head].scores; }

  /// The run of `kv_head` as kernels take it.
  [[nodiscard]] kernels::HeadRun run(int64_t kv_head) const;

  /// Whether heads keep entries of their own; else all hold one contiguous run.
  [[nodiscard]] bool ragged() const { return ragged_; }
  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return heads_[kv_head].entries; }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  /// Position of one entry, 0 <= entry < entries(kv_head).
  [[nodiscard]] int32_t position(int64_t kv_head, int64_t entry) const;
  [[nodiscard]] int64_t bytes() const override;
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  /// The plan of queries that own the newest q_len entries, in order; of dense entries a query sees the last `window`
  /// (0: all) up to its own.
  void plan_newest(const LayerQueries& queries, AttentionPlan& to, int64_t window) const;
  [[nodiscard]] AttentionPlan plan_newest(const LayerQueries& queries) const;
  /// Entries first .. first+count-1 of a head as rows of head_dim, `stride` floats apart; either may be null.
  void read_some(int64_t kv_head, int64_t first, int64_t count, float* keys, float* values, int64_t stride) const;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;
  /// The first `count` entries of every head of a dense segment without remembered numbers, in memory that both share
  /// until one of them is written.
  [[nodiscard]] std::unique_ptr<EntrySegment> front(int64_t count, const LedgerPtr& ledger) const;
  /// Takes memory of its own for what it shares with clones, as its next write would.
  void own();
  /// Held back are entries that leave one by one or are overwritten, and all remembered numbers; of entries that change
  /// all together, a copy.
  void mark(const LedgerPtr& held) override;
  void rewind() override;
  void unmark() override;

 private:
  struct Head {
    explicit Head(const LedgerPtr& ledger)
        : positions(LedgerAllocator<int32_t>(ledger)), scores(LedgerAllocator<float>(ledger)) {}
    Buffer keys;    // [cells, head_dim, 16]
    Buffer values;  // [cells, 16, head_dim]
    int64_t entries = 0;
    LedgerVector<int32_t> positions;  // empty while dense
    LedgerVector<float> scores;       // [entries, score_width_]
  };

  [[nodiscard]] int64_t cell_bytes() const;
  void reserve(Head& head, int64_t entries);
  void shrink(Head& head);
  /// Moves `entries` to the front of the head's cells, keys and values, by move(from, to), and releases the rest.
  template <typename Move>
  void close_up(Head& head, int64_t entries, const Move& move);
  void become_ragged();
  void change_version();
  struct Mark;
  /// Before an entry leaves or changes, and before all do.
  void hold(int64_t kv_head, int64_t entry);
  void hold_all();
  /// The head as it was, put together from what is here and what was held back.
  [[nodiscard]] Head restored(int64_t kv_head, const Mark& mark);

  LedgerPtr ledger_;
  std::vector<Head> heads_;
  int64_t first_position_ = 0;  // of a dense segment
  bool ragged_ = false;
  int64_t score_width_ = 0;
  EntryChanges changes_;
  std::unique_ptr<Mark> mark_;  // null: nothing is held back
};

}  // namespace kvarena
