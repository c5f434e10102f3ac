#pragma once
// Entries of two neighbouring layers that share their directions: of a token's two keys (and of its two values) one
// vector is stored for both layers, with what each must multiply it by. Entries whose directions differ too much are
// retained: the vector is then the lower layer's own, and the upper layer's stands beside it.

#include <limits>
#include <memory>
#include <vector>

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// How two layers are merged (MiniCache, arXiv:2405.14366, sections 3.3 and 3.4).
struct MergeRule {
  double interpolation = 0.6;  // t: 0 is the lower layer's direction, 1 the upper one's
  double retained = 0.05;      // share of a head's entries that are kept as they are, those of the largest angles
};

/// The direction between two vectors of `d` channels: unit vectors u and v at an angle O give
/// sin((1-t) O)/sin(O) u + sin(t O)/sin(O) v, normalised; nearly parallel ones (1-t) u + t v, normalised.
/// Returns O in radians, pi/2 where a vector is 0.
double interpolate_directions(const float* lower, const float* upper, int64_t d, double t, float* direction);

/// Storage of a pair of layers. Its bytes are counted once, in the ledger it was made or copied with.
class MergedPair {
 public:
  MergedPair(const LayerShape& shape, const MergeRule& rule, LedgerPtr ledger);

  /// Takes all entries of both tails, which hold the same tokens and forget them. The first call (the prompt) retains
  /// ceil(retained n) entries a head, of keys and of values, and sets the angles from which later ones are retained.
  void take(EntrySegment& lower, EntrySegment& upper);
  /// Copies the pair into another ledger. Copies for one ledger are one copy as long as it lives: a cache's layers are
  /// cloned one after the other, and both ask.
  [[nodiscard]] std::shared_ptr<MergedPair> copy_in(const LedgerPtr& ledger) const;

  /// As of a segment (Segment::mark()): a pair only grows.
  void mark();
  void rewind();
  void unmark() { marked_.clear(); }

  [[nodiscard]] const LayerShape& shape() const { return shared_.shape(); }
  [[nodiscard]] const EntrySegment& shared() const { return shared_; }
  [[nodiscard]] int64_t bytes() const;

 private:
  friend class MergedSegment;

  /// Vectors of the upper layer that are not shared: rows of `head_dim` in the cache's type.
  struct Rows {
    explicit Rows(const LedgerPtr& ledger) : entries(LedgerAllocator<int32_t>(ledger)) {}
    LedgerVector<int32_t> entries;  // ascending
    Buffer data;                    // value cells
  };
  struct Side {
    explicit Side(const LedgerPtr& ledger) : factors(LedgerAllocator<float>(ledger)), upper(ledger) {}
    LedgerVector<float> factors;  // [entries, 2], of the lower and the upper layer
    Rows upper;
    double retained_from = std::numeric_limits<double>::infinity();  // angle
  };
  struct Head {
    explicit Head(const LedgerPtr& ledger) : keys(ledger), values(ledger) {}
    Side keys;
    Side values;
  };

  /// Merges rows [n, head_dim] of one side: `shared` gets what both layers store.
  void merge(Side& side, bool first, const std::vector<float>& lower, const std::vector<float>& upper,
             std::vector<float>& shared) const;
  /// Sets the factors of the newest entries from what the shared vectors became when they were rounded.
  void scale(Side& side, const std::vector<float>& lower, const std::vector<float>& upper,
             const std::vector<float>& stored) const;
  void retain(Rows& rows, int64_t entry, const float* row) const;

  MergeRule rule_;
  LedgerPtr ledger_;
  EntrySegment shared_;
  std::vector<Head> heads_;
  std::vector<size_t> marked_;  // [heads, keys and values], vectors of the upper layer at mark()
  int64_t marked_entries_ = 0;
  mutable std::weak_ptr<MergedPair> last_copy_;
};

/// One layer's view of a pair.
class MergedSegment final : public Segment {
 public:
  MergedSegment(std::shared_ptr<MergedPair> pair, bool upper)
      : Segment(pair->shape()), pair_(std::move(pair)), upper_(upper) {}

  [[nodiscard]] MergedPair& pair() { return *pair_; }

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return pair_->shared_.entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override {
    return pair_->shared_.positions(kv_head);
  }
  /// The pair's bytes are the lower layer's.
  [[nodiscard]] int64_t bytes() const override { return upper_ ? 0 : pair_->bytes(); }
  /// Shared entries, which the layer's factors and retained rows make its own.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<MergedSegment>(pair_->copy_in(ledger), upper_);
  }
  /// The pair is the lower layer's.
  void mark(const LedgerPtr& /*held*/) override {
    if (!upper_) pair_->mark();
  }
  void rewind() override {
    if (!upper_) pair_->rewind();
    change_version();
  }
  void unmark() override {
    if (!upper_) pair_->unmark();
  }

 private:
  [[nodiscard]] float factor(const MergedPair::Side& side, int64_t entry) const {
    return side.factors[2 * entry + (upper_ ? 1 : 0)];
  }
  /// Steps that make shared rows this layer's own: sides [kv_heads].
  [[nodiscard]] std::vector<DequantOp> steps(const std::vector<const MergedPair::Side*>& sides) const;

  std::shared_ptr<MergedPair> pair_;
  bool upper_;
};

}  // namespace kvarena
