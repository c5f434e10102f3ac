#pragma once
// Internal: the unit of attention work, one chunk of one kv head against a block of query rows, and the reference.

#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/dispatch.h"
#include "kernels/quantize/packed_work.h"

namespace kvarena::kernels {

/// Query rows (token, head of the group) that share one pass over a chunk.
inline constexpr int64_t kBlockQueryRows = 48;

struct PackedAttentionTable;

struct ChunkArgs {
  const float* const* q;  // [rows] pointers to head_dim floats
  int64_t rows;           // 1 .. kBlockQueryRows
  const void* keys;       // the run's cells, which begin after the packed entries
  const void* values;
  const PackedEntries* packed_keys;  // or null
  int64_t packed_key_count;
  const PackedEntries* packed_values;  // or null
  int64_t packed_value_count;
  DType dtype;
  Arithmetic arithmetic;
  int64_t head_dim, value_dim;
  float scale;
  int64_t first;         // list position where the chunk starts, a multiple of kChunk
  int64_t count;         // list positions in it, 1 .. kChunk
  const int32_t* index;  // the run's index or null
  const float* bias;     // [count] added to scores, or null
  const int32_t* low;    // [rows] visible list positions low .. high-1, relative to `first`
  const int32_t* high;   // [rows]
  float* scores;         // scratch [rows][kChunk]
  float* weights;        // null, or where rows of softmax weights are kept, at distance weights_stride
  int64_t weights_stride;
  float* work;  // scratch of packed_work_floats(), and of the rows of q as pairs of bf16
  float* out;   // [rows][value_dim]
  float* max;   // [rows], -inf where the row sees nothing
  float* sum;   // [rows], 0 where the row sees nothing
  const PackedAttentionTable* packed;
};

/// Floats of ChunkArgs::work: unpacked keys and scaled queries, or unpacked values of a cell with weights and sums of
/// zeros, or the weights of kIntegerCells cells with their largest and the sums.
[[nodiscard]] static constexpr int64_t packed_work_floats(int64_t head_dim, int64_t value_dim) {
  const int64_t keys = packed_key_floats(head_dim);
  const int64_t values = whole_codes(value_dim) * kCell + kBlockQueryRows * value_dim / kCell * 2 * kCell;
  const int64_t integers = kBlockQueryRows * value_dim / kCell * (kCell + kIntegerWeightFloats);
  const int64_t more = values > integers ? values : integers;
  return keys > more ? keys : more;
}

struct Touch;  // kernels/cells/touch_simd.h

/// A chunk's packed entries, by themselves: their products are of integers, those of other entries may be of bf16.
struct PackedAttentionTable {
  /// Scores of the first of n touches, those that lie in the run's packed cells; returns how many those are.
  int (*scores)(const ChunkArgs& args, const Touch* touches, int n);
  /// Adds the packed values behind list positions begin .. end-1 to `out`.
  void (*values)(const ChunkArgs& args, int64_t begin, int64_t end);
};
KVARENA_DECLARE_INTEGER_TABLE(PackedAttentionTable, packed_attention_table);

struct AttentionTable {
  void (*chunk)(const ChunkArgs& args);
  /// Merge rule of attention.h for one row.
  void (*merge)(float* out, float* max, float* sum, const float* from_out, float from_max, float from_sum,
                int64_t value_dim);
};
KVARENA_DECLARE_BF16_TABLE(AttentionTable, attention_table);

/// List positions low .. high-1 of `run` that query t sees.
struct Visible {
  int64_t low = 0, high = 0;
};
[[nodiscard]] Visible visible_range(const AttendProblem& problem, const HeadRun& run, int64_t t);

/// One entry's key or value as numbers, from wherever it lies.
[[nodiscard]] std::vector<float> attention_entry_row(CellKind kind, const HeadRun& run, DType dtype, int64_t dim,
                                                     int64_t entry);
/// Folds one segment into the state of one query (token t, query head h) of a problem.
void attend_query_reference(const AttendArgs& args, const AttendProblem& problem, int64_t t, int64_t h);
/// Shows all queries of one kv head, one after the other, to the problem's reader; the state must be complete.
void show_queries_reference(const AttendArgs& args, const AttendProblem& problem, int64_t kv_head);
void merge_row_reference(float* out, float* max, float* sum, const float* from_out, float from_max, float from_sum,
                         int64_t value_dim);

}  // namespace kvarena::kernels
