#pragma once
// A run of cache entries of one layer, for all its kv heads, in one storage form.
//
// A layer's cache is a list of segments and attention is a fold over them: each adds its entries to an AttentionState
// (un-normalised output, running maximum, running sum), so a layer may mix forms freely: sinks in bf16, a 2-bit
// middle, a recent window in bf16. Every entry knows its original position. A segment says where its entries lie and
// how they become keys and values (AttentionPlan); who attends to them is attend_plan.h, or a device.

#include <cstdint>
#include <memory>
#include <vector>

#include "harness/cache/memory.h"
#include "harness/cache/versions.h"
#include "kernels/common/arithmetic.h"
#include "kernels/common/dtype.h"

namespace kvarena {

using kernels::DType;

/// Sizes that all segments of a layer share.
struct LayerShape {
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;         // sliding window of the model: a query sees this many newest entries; 0 = all
  bool chunked = false;       // it sees back to the last position that is a multiple of `window` instead
  DType dtype = DType::bf16;  // of entries that are not packed
  kernels::Arithmetic arithmetic = kernels::Arithmetic::exact;  // of attention to these
  /// [q_heads] scores of an entry without value that every query sees beside those of the cache (a learned attention
  /// sink); null: none. The model's.
  const float* sinks = nullptr;

  [[nodiscard]] int64_t group() const { return q_heads / kv_heads; }
  /// Bytes of one entry's key and value over all kv heads.
  [[nodiscard]] int64_t entry_bytes() const { return 2 * kv_heads * head_dim * kernels::size_of(dtype); }
};

/// The queries of one sequence in one layer and pass.
struct LayerQueries {
  const float* q = nullptr;  // [q_len, q_heads, head_dim], rotated
  int64_t q_len = 0;
  int64_t q_stride = 0;             // floats between rows
  int64_t position = 0;             // original position of the first query
  const float* hidden = nullptr;    // [q_len, hidden_size], the layer's attention input; null when nobody asked
  const int32_t* tokens = nullptr;  // [q_len], what the queries belong to; null in tests of attention alone
};

struct AttentionPlan;
class EntryMirror;

/// Position of an entry that stands for several, or for none.
inline constexpr int32_t kNoPosition = -1;

class Segment {
 public:
  explicit Segment(const LayerShape& shape) : shape_(shape) {}
  virtual ~Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  Segment(Segment&&) = default;
  Segment& operator=(Segment&&) = default;

  [[nodiscard]] const LayerShape& shape() const { return shape_; }
  /// A number that no other content of any segment has. What a segment appends leaves it as it is.
  [[nodiscard]] uint64_t version() const { return version_; }

  /// Entries that `kv_head` holds.
  [[nodiscard]] virtual int64_t entries(int64_t kv_head) const = 0;
  /// Original position of each entry of `kv_head`, ascending.
  [[nodiscard]] virtual std::vector<int32_t> positions(int64_t kv_head) const = 0;
  /// Bytes this segment really holds allocated, metadata included; a view counts only its index.
  [[nodiscard]] virtual int64_t bytes() const = 0;
  /// Appends what the queries attend to of this segment, all of it or, in a layer with a sliding window, what their
  /// positions reach. It is valid until the segment changes.
  virtual void plan(const LayerQueries& queries, AttentionPlan& to) const = 0;
  /// A copy whose memory is counted in `ledger`. Both share entries and codes until one of them changes these.
  [[nodiscard]] virtual std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const = 0;

  /// Entries of `kv_head` as float: keys and values [entries, head_dim]; either may be null. Packed entries are
  /// decoded.
  void read(int64_t kv_head, float* keys, float* values) const;

  /// Holds back what rewind() needs from here on, counted in `held`: entries that leave or change, not those that join.
  /// Nothing, of a segment that stays as it is while a request decodes. Clones hold nothing back.
  virtual void mark(const LedgerPtr& /*held*/) {}
  /// Returns to the content at mark(), which is over then.
  virtual void rewind() {}
  /// Ends what mark() began.
  virtual void unmark() {}

  /// The copy of the entries elsewhere that computes probabilities in the executor's place; null for none. Clones have
  /// none.
  [[nodiscard]] EntryMirror* mirror() const { return mirror_; }
  void use_mirror(EntryMirror* mirror) { mirror_ = mirror; }

 protected:
  void change_version() { version_ = new_version(); }

 private:
  LayerShape shape_;
  uint64_t version_ = new_version();
  EntryMirror* mirror_ = nullptr;
};

/// Scale of the scores: 1/sqrt(head_dim).
[[nodiscard]] float attention_scale(const LayerShape& shape);

}  // namespace kvarena
