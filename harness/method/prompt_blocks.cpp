#include "harness/method/prompt_blocks.h"

#include <algorithm>
#include <limits>

#include "harness/method/entry_scores.h"
#include "kernels/cell_scores/cell_scores.h"

namespace kvarena {
namespace {

/// Means over blocks of rows [n, dim], in double.
std::vector<float> block_means(const std::vector<float>& rows, int64_t dim, int64_t block) {
  const int64_t n = std::ssize(rows) / dim;
  std::vector<float> means;
  for (int64_t first = 0; first < n; first += block) {
    const int64_t end = std::min(first + block, n);
    for (int64_t c = 0; c < dim; ++c) {
      double sum = 0;
      for (int64_t t = first; t < end; ++t) sum += rows[t * dim + c];
      means.push_back(static_cast<float>(sum / static_cast<double>(end - first)));
    }
  }
  return means;
}

}  // namespace

std::vector<float> last_attention(const EntrySegment& entries, const LayerQueries& queries, int64_t q_head,
                                  int64_t rows) {
  const LayerShape& shape = entries.shape();
  const int64_t n = entries.entries(0), first = queries.q_len - rows;
  const kernels::Cells keys{.kind = kernels::CellKind::keys,
                            .dtype = shape.dtype,
                            .head_dim = shape.head_dim,
                            .data = const_cast<void*>(entries.run(q_head / shape.group()).keys)};
  std::vector<float> scores(static_cast<size_t>(rows * n));
  kernels::cell_scores(queries.q + first * queries.q_stride + q_head * shape.head_dim, rows, queries.q_stride, keys, n,
                       scores.data(), n);
  for (int64_t row = 0; row < rows; ++row) {
    std::fill(scores.begin() + row * n + n - rows + row + 1, scores.begin() + (row + 1) * n,
              -std::numeric_limits<float>::infinity());
  }
  const std::vector<float> sinks(static_cast<size_t>(rows), shape.sinks != nullptr ? shape.sinks[q_head] : 0);
  softmax_rows(scores, rows, attention_scale(shape), shape.sinks != nullptr ? sinks.data() : nullptr);
  return scores;
}

std::vector<float> column_sums(std::span<const float> attention, int64_t rows) {
  const int64_t n = std::ssize(attention) / rows;
  std::vector<float> sums(static_cast<size_t>(n));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < n; ++column) sums[column] += attention[row * n + column];
  }
  return sums;
}

std::vector<float> diagonal_sums(std::span<const float> attention, int64_t rows) {
  const int64_t n = std::ssize(attention) / rows;
  std::vector<float> sums(static_cast<size_t>(n));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t shift = rows - 1 - row;
    for (int64_t column = 0; column + shift < n; ++column) sums[column + shift] += attention[row * n + column];
  }
  return sums;
}

PromptRanges ranges_of(const std::vector<BlockMask>& heads, int64_t n, int64_t block) {
  PromptRanges all;
  for (int64_t row = 0; row < blocks_of(n, block); ++row) {
    const int64_t end = std::min((row + 1) * block, n);
    RowRanges& rows = all.emplace_back();
    rows.first = row * block;
    rows.count = end - rows.first;
    for (const BlockMask& mask : heads) {
      std::vector<EntryRange>& ranges = rows.heads.emplace_back();
      for (int64_t column = 0; column <= row; ++column) {
        if (!mask.has(row, column)) continue;
        const auto from = static_cast<int32_t>(column * block);
        const auto to = static_cast<int32_t>(std::min((column + 1) * block, end));
        if (!ranges.empty() && ranges.back().end == from) {
          ranges.back().end = to;
        } else {
          ranges.push_back({from, to});
        }
      }
    }
  }
  return all;
}

std::vector<float> mean_keys(const EntrySegment& entries, int64_t kv_head, int64_t block) {
  const int64_t n = entries.entries(0), dim = entries.shape().head_dim;
  std::vector<float> keys(static_cast<size_t>(n * dim));
  entries.read_some(kv_head, 0, n, keys.data(), nullptr, dim);
  return block_means(keys, dim, block);
}

std::vector<float> mean_queries(const LayerQueries& queries, const LayerShape& shape, int64_t q_head, int64_t block) {
  const int64_t dim = shape.head_dim;
  std::vector<float> rows(static_cast<size_t>(queries.q_len * dim));
  for (int64_t t = 0; t < queries.q_len; ++t)
    std::copy_n(queries.q + t * queries.q_stride + q_head * dim, dim, &rows[t * dim]);
  return block_means(rows, dim, block);
}

}  // namespace kvarena
