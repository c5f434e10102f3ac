#pragma once
// Attention of a few or many queries over one segment of cache entries, as a step of a fold.
//
// A layer's cache is a list of segments; each call adds one segment to a running state (un-normalised output, maximum,
// sum), and finish_attention() divides. Dense, ragged and indexed segments differ only in the runs given.
//
// Order of the arithmetic (a promise: a query's bits depend on its own data alone, never on which or how many queries,
// sequences or threads are in the call; decoding one token, verifying 20 and prefilling 2000 agree bit for bit):
//   score(query, entry)  sum over channels ascending by fused multiply-add from 0, then times scale, then plus the
//                  entry's bias where the run has any
//   chunk          512 consecutive listed entries counted from the start of the run; its maximum;
//                  p = exp(score - maximum); sum of p by 16 lanes (position in the chunk modulo 16, ascending), lanes
//                  by a fixed tree; output o[c] += p * v[c] over entries ascending by fused multiply-add from 0
//   Arithmetic::bf16  q and p are rounded to bf16 (the sum of p is not), and products take pairs, the second of both
//                  first: channels c+1, c of a score, list positions 2j+1, 2j of the chunk for o. Denormal numbers
//                  count as zero. Entries in bf16 alone, not packed ones
//   packed keys    grouped along tokens: score = (sum over channels ascending of (q[c] s[c]) * level[c]) + (sum of
//                  q[c] lo[c] by 16 lanes and a fixed tree). Grouped along channels: over groups ascending,
//                  score += s * (sum over the group's channels ascending of q[c] level[c]), then += lo * (sum of the
//                  group's q[c] by 16 lanes and a fixed tree)
//   packed values  o[c] += (p s) * level, and the sum of p lo is added to the chunk's o
//   in integers    codes of 1, 2 and 4 bits with uniform levels (values of 64 or 128 channels): q s of a group, and p s
//                  of 64 neighbouring entries (by number in the run), are rounded to 16-bit integers under the largest
//                  of them, multiplied exactly, and scaled back; the rounding error is compensated as if every code
//                  were the middle one. A rounding is at most 2^-16 of the largest, where that of bf16 keys or values
//                  is 2^-9 of each
//   state          chunks merged in ascending order by the merge rule: m = max(m1, m2), both parts scaled by
//                  exp(m_i - m)
//
// An indexed run that lists every entry gives the bits of the dense run. Cutting a cache into segments anywhere but at
// multiples of 512 changes the last bits. (The reference path: two passes in double, agrees within rounding.)
//
// Cost per call: 2 * q_heads * q_len * visible entries * (head_dim + value_dim) flops; keys and values are read once
// per group of query heads and block of up to 48 query rows: entries * (head_dim + value_dim) * size bytes per kv head.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/query_sums.h"
#include "kernels/cells/cells.h"
#include "kernels/common/arithmetic.h"
#include "kernels/common/dtype.h"
#include "kernels/quantize/quantize.h"

namespace kvarena::kernels {

/// List positions of a chunk: scores are exponentiated and summed chunk by chunk, then merged.
inline constexpr int64_t kChunk = 512;

/// One kv head's entries. Heads may have different counts (ragged); entries == 0 adds nothing.
///
/// The first packed_key_count entries may have their keys, and the first packed_value_count entries their values, in
/// packed form; the cells then begin with the entry after. The two boundaries are independent, because codecs group
/// keys along entries and values within one (KIVI keeps 0..R-1 recent keys but exactly R recent values in 16 bit). The
/// packed part is attended as it lies: scale and zero are factored out of the products, nothing is decoded to memory.
struct HeadRun {
  const void* keys = nullptr;      // cells of `dtype`, head_dim channels
  const void* values = nullptr;    // cells of `dtype`, value_dim channels
  int64_t entries = 0;             // packed ones included
  const int32_t* index = nullptr;  // null: all entries; else the entries attended, strictly ascending, in 0..entries-1.
                                   // Runs of whole cells (pages of 16) are read at the speed of a dense run.
  int64_t index_count = 0;
  const PackedEntries* packed_keys = nullptr;
  int64_t packed_key_count = 0;  // multiple of 16, or all entries; 0 when packed_keys is null
  const PackedEntries* packed_values = nullptr;
  int64_t packed_value_count = 0;  // any number; 0 when packed_values is null
  const float* bias = nullptr;     // [listed entries] finite numbers added to their scores: log weights; null: none
};

/// Running result of the fold over segments. All arrays dense, owned by the caller.
struct AttentionState {
  float* out = nullptr;  // [q_len, q_heads, value_dim], un-normalised until finish_attention
  float* max = nullptr;  // [q_len, q_heads], -inf when nothing was seen
  float* sum = nullptr;  // [q_len, q_heads]
};

/// Probabilities of one kv head's entries for the query rows of some whole tokens. Row r belongs to token
/// first_token + r / group of the problem's queries and to query head kv_head * group + r % group. The denominator
/// covers everything folded into the problem's state: the whole layer when the last segment is read.
struct ProbabilityRows {
  int64_t kv_head = 0;
  int64_t group = 1;
  int64_t first_token = 0;
  int64_t tokens = 0;
  const int64_t* low = nullptr;   // [tokens] list positions that a token sees: low .. high-1
  const int64_t* high = nullptr;  // [tokens]
  int64_t first = 0;              // list position of the first weight, a multiple of kChunk
  const float* weights =
      nullptr;  // [tokens * group] rows; 0 in what a row does not see of its first and last 16 entries
  int64_t weights_stride = 0;
  const float* factors = nullptr;  // [tokens * group] rows of one number a chunk
  int64_t factors_stride = 0;

  /// Probability of list position p, low <= p < high.
  [[nodiscard]] float probability(int64_t row, int64_t p) const {
    const int64_t i = p - first;
    return weights[row * weights_stride + i] * factors[row * factors_stride + i / kChunk];
  }
};

/// Receives probabilities while attention has them at hand: reading them costs little, computing them again costs half
/// of the attention.
class AttentionReader {
 public:
  virtual ~AttentionReader() = default;
  /// Takes some tokens of a kv head: in ascending order, one call after the other; different heads may come from
  /// different threads at once. Must not throw.
  virtual void read(const ProbabilityRows& rows) = 0;
  /// The sums of query_sums.h that read() adds up, when it does nothing else: a device that has the probabilities may
  /// then add them up there, and read() is not called. Empty: read() does more.
  [[nodiscard]] virtual std::vector<QuerySum> only_sums() { return {}; }
};

/// One sequence's queries against one segment.
struct AttendProblem {
  const float* q = nullptr;  // [q_len, q_heads, head_dim]: (t, h, c) at q + t * q_token_stride + h * q_head_stride + c
  int64_t q_len = 0;
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  const HeadRun* runs = nullptr;  // [kv_heads]
  DType dtype = DType::f32;
  /// true: the last q_len entries of every run belong to the queries in order, and query t sees the entries before
  /// entries - (q_len - 1 - t). false: every query sees every entry.
  bool causal = false;
  /// [q_len] ascending; null: as `causal` says. Query t sees the entries before seen[t]: queries of scattered tokens.
  const int32_t* seen = nullptr;
  /// Sliding window: of the entries it may see, a query sees the last `window` (by entry number). 0: no limit.
  int64_t window = 0;
  /// Windows are chunks: a query sees back to the last position that is a multiple of `window`. Entries are
  /// consecutive, entry 0 at first_position.
  bool chunked = false;
  int64_t first_position = 0;
  AttentionState state;
  /// Reads this segment's probabilities; may be null. Takes scratch memory for 48 rows of the longest run a thread.
  AttentionReader* reader = nullptr;
};

/// Several sequences of one layer (a ragged batch). Problems must not share state memory.
struct AttendArgs {
  std::span<const AttendProblem> problems;
  int64_t q_heads = 0;  // multiple of kv_heads; query head h reads kv head h / (q_heads / kv_heads)
  int64_t kv_heads = 0;
  int64_t head_dim = 0;   // size of queries and keys, multiple of 16
  int64_t value_dim = 0;  // size of values and output, multiple of 16; 0 means head_dim
  float scale = 1;
  Arithmetic arithmetic = Arithmetic::exact;  // with entries in bf16 that are not packed
};

/// out = 0, max = -inf, sum = 0. With `sinks` [q_heads], every query has seen one entry of this score and value 0 (a
/// learned attention sink): max = sinks, sum = 1.
void init_attention(const AttentionState& state, int64_t q_len, int64_t q_heads, int64_t value_dim,
                    const float* sinks = nullptr);

/// Folds one segment into every problem's state.
void attend(const AttendArgs& args);

/// Folds `from` into `into` by the merge rule above (rows = q_len * q_heads).
void merge_attention(const AttentionState& into, const AttentionState& from, int64_t rows, int64_t value_dim);

/// out /= sum; lse [q_len, q_heads] = max + log(sum) when not null. A query that saw nothing gets 0 and -inf.
void finish_attention(const AttentionState& state, int64_t q_len, int64_t q_heads, int64_t value_dim, float* lse);

}  // namespace kvarena::kernels
