#pragma once
// Attention that every entry received: sums of softmax probabilities over queries, without the n x n matrix.
//
//   sums[h][p] += sum over queries t, ascending, of exp(score(t, h, entry p) - lse[t, h])
//
// with the score of attention.h (same bits) and lse from finish_attention over the *whole* cache of that query. Adding
// happens query by query in float32, so a prompt handed over in pieces (in order) gives the bits of one call; results
// do not depend on threads. Queries that do not see an entry add nothing to it; a query whose lse is -inf adds nothing.
// Used for accumulated attention (all prompt queries), for the votes of the last window (q = the last w queries), and
// with q_len = 1 for one step's probabilities.
//
// Cost: 2 * q_heads * q_len * visible entries * head_dim flops; keys are read once per 6 query rows from the cache.

#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"

namespace kvarena::kernels {

/// One sequence's queries against one segment. q, runs, dtype, causal, window, chunked and first_position mean what
/// they mean in AttendProblem; values are not read.
struct ColumnSumsProblem {
  const float* q = nullptr;  // [q_len, q_heads, head_dim]
  int64_t q_len = 0;
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  const float* lse = nullptr;     // [q_len, q_heads]
  const HeadRun* runs = nullptr;  // [kv_heads]
  DType dtype = DType::f32;
  bool causal = false;
  int64_t window = 0;
  float* sums = nullptr;    // [q_heads] rows; row h has one number per listed entry of its run, added to
  int64_t sums_stride = 0;  // distance of rows, >= listed entries of every run
  bool chunked = false;
  int64_t first_position = 0;
};

struct ColumnSumsArgs {
  std::span<const ColumnSumsProblem> problems;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  float scale = 1;
  Arithmetic arithmetic = Arithmetic::exact;  // that of the attention that gave lse
};

void column_sums(const ColumnSumsArgs& args);

}  // namespace kvarena::kernels
