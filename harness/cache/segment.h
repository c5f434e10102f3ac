#pragma once
// A run of cache entries of one layer, for all its kv heads, in one storage form.
//
// A layer's cache is a list of segments and attention is a fold over them: each adds its entries to an AttentionState
// (un-normalised output, running maximum, running sum), so a layer may mix forms freely: sinks in bf16, a 2-bit
// middle, a recent window in bf16. Every entry knows its original position.

#include <cstdint>
#include <memory>
#include <vector>

#include "harness/cache/memory.h"
#include "kernels/attention/attention.h"
#include "kernels/common/dtype.h"

namespace kvarena {

using kernels::DType;

/// What all segments of a layer share.
struct LayerShape {
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;         // sliding window of the model: a query sees this many newest entries; 0 = all
  DType dtype = DType::bf16;  // of entries that are not packed

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

enum class StorageForm { dense, ragged, indexed, packed };
[[nodiscard]] const char* to_string(StorageForm form);

class Segment {
 public:
  virtual ~Segment() = default;

  [[nodiscard]] virtual StorageForm form() const = 0;
  /// Entries that `kv_head` holds.
  [[nodiscard]] virtual int64_t entries(int64_t kv_head) const = 0;
  /// Original position of each entry of `kv_head`, ascending.
  [[nodiscard]] virtual std::vector<int32_t> positions(int64_t kv_head) const = 0;
  /// Bytes this segment really holds allocated, metadata included; a view counts only its index.
  [[nodiscard]] virtual int64_t bytes() const = 0;

  /// Adds this segment's entries to `state`. With `causal` the last q_len entries belong to the queries in order, and
  /// query t does not see those after its own.
  virtual void attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const = 0;

  /// sums[h * row_stride + i] += sum over queries t of exp(q[t,h].k[i] / sqrt(head_dim) - lse[t,h]) for each query
  /// head h and entry i of its kv head: with lse of the whole layer these are attention probabilities.
  /// lse [q_len, q_heads].
  virtual void add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                                 int64_t row_stride) const = 0;

  /// Entries of `kv_head` as float: keys and values [entries, head_dim]; either may be null. Packed entries are
  /// decoded.
  virtual void read(int64_t kv_head, float* keys, float* values) const = 0;

  /// A deep copy whose memory is counted in `ledger`.
  [[nodiscard]] virtual std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const = 0;
};

/// Scale of the scores: 1/sqrt(head_dim).
[[nodiscard]] float attention_scale(const LayerShape& shape);

}  // namespace kvarena
