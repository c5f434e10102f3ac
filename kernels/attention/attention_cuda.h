#pragma once
// attention.h on a CUDA device: the same segments, ragged batches, indexes, windows and packed entries.
//
// AttendArgs, AttendProblem, HeadRun and PackedEntries are the host's and free on return; what they point to (q, seen,
// state, keys, values, index, codes, scale, zero, codebook) lies on the device, keys, values and codes at multiples of
// 16 bytes. Everything is queued on `stream`; nothing waits.
//
// 16-bit cells are multiplied by tensor cores: queries and weights enter as the sum of two numbers of the cells'
// format, which keeps 16 (bf16) or 21 (f16) bits of them (queries of f16 cells must lie in its range), and products are
// added in float32. So are, in caches of 16-bit cells and unless PackedEntries::exact, codes of 1, 2 and 4 bits with
// uniform levels (keys with scales along tokens and head_dim * bits a multiple of 128; values of 16, 32, 64 or 128
// channels): codes are exact bf16 integers, scales go to the split factor, zeros are added in floats. All else is
// multiplied in floats.
//
// Order of the arithmetic, a promise as in attention.h, within which the device keeps bits of its own:
//   score  in floats: sums over channels c with the same c modulo 8 ascending by fused multiply-add, these by a fixed
//          tree; tensor cores: by 16 channels in a fixed order; then times scale
//   chunk  kChunk list positions; p = exp(score - maximum); sum of p by 32 lanes ascending and a fixed tree; output in
//          floats: by position modulo a number that head_dim fixes, ascending, these ascending; tensor cores: by 16
//          positions ascending within 64, these ascending
//   state  chunks merged in ascending order
//
// So a query's bits depend on its own data alone: not on the batch, on the other queries of its sequence or on how
// chunks were spread over the device. An index that lists every entry has the bits of none; multiplied in floats,
// packed entries have those of the same numbers decoded to f32 cells (but a chunk in which packed values end adds those
// before and behind that border apart). A query's weight for an entry that only others see is 0 and multiplied like the
// rest, so such entries must be finite.
//
// Keys and values are read once per group of up to 8 query rows (token, head of the group), 16 where more share 16-bit
// cells.

#include <span>

#include "kernels/attention/attention.h"
#include "kernels/cuda/device.h"

namespace kvarena::kernels {

void init_attention_cuda(const AttentionState& state, int64_t q_len, int64_t q_heads, int64_t value_dim,
                         CudaStream stream);

/// Folds one segment into every problem's state. head_dim and value_dim up to 1024.
void attend_cuda(const AttendArgs& args, CudaScratch& scratch, CudaStream stream);

/// Growth of a problem's runs between launches of a recorded step: run h has *before - dropped[h] + q_len entries when
/// the work runs, HeadRun::entries at most. No indexes and no packed entries.
struct RunGrowth {
  const int32_t* before = nullptr;   // on the device: tokens in front of the queries'; null: runs are as described
  const int64_t* dropped = nullptr;  // [kv_heads], free on return: tokens of *before without an entry; null: none
};

/// Folds one segment into every problem's state, with a growth for each problem.
void attend_cuda(const AttendArgs& args, std::span<const RunGrowth> growth, CudaScratch& scratch, CudaStream stream);

/// Folds `from` into `into` (rows = q_len * q_heads).
void merge_attention_cuda(const AttentionState& into, const AttentionState& from, int64_t rows, int64_t value_dim,
                          CudaStream stream);

/// out /= sum; lse [q_len, q_heads] when not null.
void finish_attention_cuda(const AttentionState& state, int64_t q_len, int64_t q_heads, int64_t value_dim, float* lse,
                           CudaStream stream);

}  // namespace kvarena::kernels
