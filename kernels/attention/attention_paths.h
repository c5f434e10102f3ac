#pragma once
// Internal: the unit of attention work, one chunk of one kv head against a block of query rows, and the reference.

#include "kernels/attention/attention.h"
#include "kernels/common/dispatch.h"

namespace kvarena::kernels {

/// Query rows (token, head of the group) that share one pass over a chunk.
inline constexpr int64_t kBlockQueryRows = 48;

struct ChunkArgs {
  const float* const* q;  // [rows] pointers to head_dim floats
  int64_t rows;           // 1 .. kBlockQueryRows
  const void* keys;       // the run's cells
  const void* values;
  DType dtype;
  int64_t head_dim, value_dim;
  float scale;
  int64_t first;         // list position where the chunk starts, a multiple of kChunk
  int64_t count;         // list positions in it, 1 .. kChunk
  const int32_t* index;  // the run's index or null
  const int32_t* low;    // [rows] visible list positions low .. high-1, relative to `first`
  const int32_t* high;   // [rows]
  float* scores;         // scratch [rows][kChunk]
  float* out;            // [rows][value_dim]
  float* max;            // [rows], -inf where the row sees nothing
  float* sum;            // [rows], 0 where the row sees nothing
};

struct AttentionTable {
  void (*chunk)(const ChunkArgs& args);
  /// Merge rule of attention.h for one row.
  void (*merge)(float* out, float* max, float* sum, const float* from_out, float from_max, float from_sum,
                int64_t value_dim);
};
KVARENA_DECLARE_TABLE(AttentionTable, attention_table);

/// List positions low .. high-1 of `run` that query t sees.
struct Visible {
  int64_t low = 0, high = 0;
};
[[nodiscard]] Visible visible_range(const AttendProblem& problem, const HeadRun& run, int64_t t);

/// One query (token t, query head h) of one problem, folded into its state.
void attend_query_reference(const AttendArgs& args, const AttendProblem& problem, int64_t t, int64_t h);
void merge_row_reference(float* out, float* max, float* sum, const float* from_out, float from_max, float from_sum,
                         int64_t value_dim);

}  // namespace kvarena::kernels
