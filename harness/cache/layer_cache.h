#pragma once
// The cache of one layer and of a whole model, for one request.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "harness/cache/entry_segment.h"
#include "harness/cache/packed_segment.h"
#include "harness/cache/recurrent_state.h"

namespace kvarena {

/// A method's data about a layer beside its entries (page bounds, centroids, landmarks), or about a whole request.
/// Counted, cloned with the cache; it must never need the method instance to be copied.
class LayerIndex {
 public:
  virtual ~LayerIndex() = default;
  [[nodiscard]] virtual int64_t bytes() const = 0;
  [[nodiscard]] virtual std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const = 0;

  int64_t entries = 0;  // entries of the tail, or tokens of the request, that are indexed
};

/// A copy in another ledger; null of none.
[[nodiscard]] std::unique_ptr<LayerIndex> clone_index(const std::unique_ptr<LayerIndex>& index,
                                                      const LedgerPtr& ledger);

/// Segments oldest first. The last one takes new tokens and is always an EntrySegment.
class LayerCache {
 public:
  LayerCache(const LayerShape& shape, LedgerPtr ledger);

  void append(const float* keys, const float* values, int64_t n, int64_t stride, int64_t position);
  /// Appends what the queries, which own the newest entries, attend to of all segments.
  void plan(const LayerQueries& queries, AttentionPlan& to) const;
  /// The plan of the view when one is set, else of all segments.
  [[nodiscard]] AttentionPlan plan(const LayerQueries& queries) const;

  /// Entries over all segments of one head.
  [[nodiscard]] int64_t entries(int64_t kv_head) const;
  [[nodiscard]] int64_t bytes() const;

  [[nodiscard]] EntrySegment& tail();
  [[nodiscard]] const EntrySegment& tail() const;
  void insert_before_tail(std::unique_ptr<Segment> segment);
  /// Puts a codec's segment in front of the tail.
  void insert_packed(std::unique_ptr<PackedSegment> segment);
  /// Removes the segments that are not among `kept`.
  void keep_segments(std::span<Segment* const> kept);
  /// Packed segments, oldest first.
  [[nodiscard]] const std::vector<PackedSegment*>& packed() const { return packed_; }

  [[nodiscard]] const std::vector<std::unique_ptr<Segment>>& segments() const { return segments_; }
  [[nodiscard]] const LayerShape& shape() const { return shape_; }
  [[nodiscard]] const LedgerPtr& ledger() const { return ledger_; }
  [[nodiscard]] LayerCache clone(const LedgerPtr& ledger) const;

  /// For the present pass attention reads this view instead of the segments; cleared by the engine after the pass.
  std::unique_ptr<Segment> view;
  std::unique_ptr<LayerIndex> index;

 private:
  LayerShape shape_;
  LedgerPtr ledger_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<PackedSegment*> packed_;  // of segments_
};

struct KvCache;

/// While it lives, what a cache's queries gave to its entries is computed where a copy of these lies.
class MirrorScope {
 public:
  virtual ~MirrorScope() = default;
};

/// A copy of a cache's entries elsewhere, on a device: kept by whoever made it, gone with the cache. Used as the device
/// is, by one thread at a time.
class CacheMirror {
 public:
  virtual ~CacheMirror() = default;
  /// Makes the mirror of `clone`, which was just cloned from `from`, the cache that this one mirrors.
  [[nodiscard]] virtual std::unique_ptr<CacheMirror> for_clone(const KvCache& from, KvCache& clone) = 0;
  /// Brings the copy up to date with `own`, the cache that it is a copy of, for add_probabilities() there.
  /// Null where no copy can hold that. Throws UserError when the device refuses.
  [[nodiscard]] virtual std::unique_ptr<MirrorScope> scores_scope(KvCache& own) = 0;
};

/// One request's cache.
struct KvCache {
  std::vector<LayerCache> layers;  // those of the model that hold entries
  int64_t length = 0;              // tokens whose KV was appended = position of the next token
  /// Tokens of the prompt when they are known before its first pass, else 0; rotations that depend on the sequence's
  /// length (RopeScaling::by_length) need it.
  int64_t prompt_length = 0;
  LedgerPtr ledger;
  std::unique_ptr<LayerIndex> index;    // what a method keeps for all layers together
  std::unique_ptr<CacheMirror> mirror;  // of a clone, what for_clone() gives
  std::vector<RecurrentState> states;   // of the model's other layers; empty in most models

  explicit KvCache(std::span<const LayerShape> layers, std::span<const RecurrentShape> states = {});
  KvCache(int64_t layers, const LayerShape& shape);
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  /// Bytes allocated by all layers, metadata and states included.
  [[nodiscard]] int64_t bytes() const;
  /// Bytes of the states alone.
  [[nodiscard]] int64_t state_bytes() const;
  /// A copy with a ledger of its own, which counts all of it; memory is shared segment by segment until one of both
  /// changes there.
  [[nodiscard]] KvCache clone() const;
  /// Takes memory of its own for tails that it shares, which a first append would take in the middle of a pass.
  void own_tails();
  /// Forgets the entries from position `length` on, which must lie in the tails. Only for caches whose tails are dense;
  /// layers may hold fewer tokens than others. An index is told that it covers no more than what is left. States must
  /// have been held at or before that position.
  void truncate(int64_t length);

  /// Has the states hold back, from the present length on, what follow_length() needs (RecurrentState::hold()).
  void hold_states();
  /// Ends what hold_states() began.
  void release_states();
  /// Takes the states back to `length`, which has become less since hold_states().
  void follow_length();
  /// Shares the states of another request's cache, of the same length.
  void take_states(const KvCache& from);

 private:
  KvCache() = default;  // for clone
};

/// How far hooks reach into a pass, which decides where it may be computed (harness/model/offload.h).
enum class HookAccess : uint8_t {
  nothing,    // none of them does anything
  rows,       // they and their readers look at what they are shown; after_attention() may change the cache
  planes,     // the same, and passes of one token read upper planes alone where there are two (UpperPlaneView)
  views,      // as rows, and before_attention() may set a view
  attention,  // they choose otherwise what is attended to
};

/// Callbacks that see or steer the attention of a pass: methods, through the engine. Called for each layer in order.
class AttentionHooks {
 public:
  virtual ~AttentionHooks() = default;
  [[nodiscard]] virtual HookAccess reach() const { return HookAccess::attention; }
  /// Before a device takes a copy of what the cache holds: what is still on its way has to be there.
  virtual void complete(KvCache& /*cache*/) {}
  /// Before the pass's first layer. tokens: what the cache is about to take, the first at position cache.length.
  virtual void before_pass(KvCache& /*cache*/, std::span<const int32_t> /*tokens*/) {}
  /// After the pass's keys and values were appended, before attention. May set `cache.view`.
  virtual void before_attention(int64_t /*layer*/, LayerCache& /*cache*/, const LayerQueries& /*queries*/) {}
  /// The reader of the tail's attention while it is computed; null: nobody reads. Called after
  /// before_attention(), for passes whose caches have no view.
  [[nodiscard]] virtual kernels::AttentionReader* reader(int64_t /*layer*/, const LayerCache& /*cache*/,
                                                         const LayerQueries& /*queries*/) {
    return nullptr;
  }
  /// After attention. lse [q_len, q_heads], natural logarithm of the softmax denominators.
  virtual void after_attention(int64_t /*layer*/, LayerCache& /*cache*/, const LayerQueries& /*queries*/,
                               const float* /*lse*/) {}
  /// Whether LayerQueries::hidden is wanted.
  [[nodiscard]] virtual bool wants_hidden() const { return false; }
  /// After the whole layer: the residual stream of the pass's tokens, rows [count, hidden_size].
  virtual void after_layer(int64_t /*layer*/, const float* /*rows*/, int64_t /*count*/, int64_t /*hidden_size*/) {}
};

}  // namespace kvarena
