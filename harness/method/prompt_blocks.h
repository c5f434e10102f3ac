#pragma once
// Parts that patterns of sparse prefill share: what the last queries attend to, sums over it, and blocks of the prompt.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/method/prefill_pattern.h"

namespace kvarena {

/// Attention probabilities of a query head's last `rows` queries over the prompt, [rows, n]; 0 behind a query's own
/// entry.
[[nodiscard]] std::vector<float> last_attention(const EntrySegment& entries, const LayerQueries& queries,
                                                int64_t q_head, int64_t rows);

/// Sums over the rows of `attention` [rows, n].
[[nodiscard]] std::vector<float> column_sums(std::span<const float> attention, int64_t rows);
/// Sums along diagonals, [n]: number x is of the diagonal on which the last row has its column x, so that the queries
/// of number n - 1 - s attend to what lies s entries before them.
[[nodiscard]] std::vector<float> diagonal_sums(std::span<const float> attention, int64_t rows);

/// Blocks of keys that each block of queries of one head attends to.
class BlockMask {
 public:
  explicit BlockMask(int64_t blocks) : blocks_(blocks), chosen_(static_cast<size_t>(blocks * blocks)) {}
  [[nodiscard]] int64_t blocks() const { return blocks_; }
  [[nodiscard]] bool has(int64_t row, int64_t column) const { return chosen_[row * blocks_ + column] != 0; }
  void choose(int64_t row, int64_t column) { chosen_[row * blocks_ + column] = 1; }

 private:
  int64_t blocks_;
  std::vector<uint8_t> chosen_;  // [blocks, blocks], rows are blocks of queries
};

/// Number of blocks of `block` tokens in n, the last one perhaps shorter.
[[nodiscard]] inline int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }
/// The ranges of a prompt of n tokens in blocks, with a mask for each query head.
[[nodiscard]] PromptRanges ranges_of(const std::vector<BlockMask>& heads, int64_t n, int64_t block);

/// Mean rows of blocks of keys of a kv head, [blocks_of(n, block), head_dim].
[[nodiscard]] std::vector<float> mean_keys(const EntrySegment& entries, int64_t kv_head, int64_t block);
/// Mean rows of blocks of queries of a head, likewise.
[[nodiscard]] std::vector<float> mean_queries(const LayerQueries& queries, const LayerShape& shape, int64_t q_head,
                                              int64_t block);

}  // namespace kvarena
