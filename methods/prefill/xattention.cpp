#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "harness/core/error.h"
#include "harness/method/entry_scores.h"
#include "harness/method/prompt_blocks.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {
namespace {

constexpr int64_t kBlock = 128;
constexpr int64_t kTogether = 1024;  // tokens whose products are computed together

/// Rows [groups, stride * dim] of `stride` tokens each, in their order or reversed; a last group is filled up with
/// zeros. Token t of head is at rows + t * row_stride.
std::vector<float> grouped(const float* rows, int64_t n, int64_t row_stride, int64_t dim, int64_t stride,
                           bool reversed) {
  std::vector<float> groups(static_cast<size_t>(blocks_of(n, stride) * stride * dim));
  for (int64_t t = 0; t < n; ++t) {
    const int64_t place = reversed ? stride - 1 - t % stride : t % stride;
    std::copy_n(rows + t * row_stride, dim, &groups[(t / stride * stride + place) * dim]);
  }
  return groups;
}

/// Groups of keys, ready for products, kTogether tokens in each.
std::vector<kernels::PackedMatrix> packed_keys(const EntrySegment& entries, int64_t kv_head, int64_t stride) {
  const int64_t n = entries.entries(0), dim = entries.shape().head_dim, width = stride * dim;
  std::vector<float> keys(static_cast<size_t>(n * dim));
  entries.read_some(kv_head, 0, n, keys.data(), nullptr, dim);
  const std::vector<float> groups = grouped(keys.data(), n, dim, dim, stride, /*reversed=*/false);
  std::vector<kernels::PackedMatrix> packed;
  const int64_t count = blocks_of(n, stride), together = kTogether / stride;
  for (int64_t first = 0; first < count; first += together)
    packed.push_back(
        kernels::pack_weights(&groups[first * width], std::min(together, count - first), width, DType::f32));
  return packed;
}

/// Chooses blocks of 128 keys for each head and block of 128 queries by sums along antidiagonals: groups of `stride`
/// queries and keys have the score
///   s(a, b) = sum over i of q[a stride + stride - 1 - i] . k[b stride + i] / (stride sqrt(d)),   b <= a
/// a block's number is the sum of softmax over b of s in it, and a row of blocks attends to the first block and its own
/// and then to those with the largest numbers until the share `threshold` of the row's sum is reached. As in the
/// authors' code, rows of the first `chunk` take one block more than the share asks for, and count the first block's
/// number where it comes by rank. Xu et al. 2025, XAttention, arXiv:2503.16428, section 2.1, algorithm 1;
/// xattn_estimate and find_blocks_chunked of mit-han-lab/x-attention (e379887) with select_mode "inverse" and the
/// stride of its configuration. One threshold for all heads: section 2.2's search for one a head and the authors' table
/// for Llama-3.1-8B are left out.
class XAttention final : public PrefillPattern {
 public:
  void parameters(ParameterVisitor& p) override {
    p("threshold", threshold_).above(0).max(1).doc("share of a row's sum that its blocks reach");
    p("stride", stride_).min(1).doc("queries and keys of a group, a divisor of 128");
    p("chunk", chunk_)
        .min(128)
        .doc("tokens whose blocks are chosen together; by the authors' rule unless given, all of up to 16k");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (kBlock % stride_ == 0) return;
    problems.push_back(
        describe({.place = place + ".stride", .found = fmt::format("{}", stride_), .expected = "a divisor of 128"}));
  }

  PromptRanges attended(const LayerContext& layer, const LayerQueries& queries) const override {
    const EntrySegment& entries = layer.cache.tail();
    const LayerShape& shape = entries.shape();
    if (queries.q_len <= 2 * kBlock) return {};  // a row has its own block and the first one
    std::vector<BlockMask> heads;
    std::vector<kernels::PackedMatrix> keys;
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      if (head % shape.group() == 0) keys = packed_keys(entries, head / shape.group(), stride_);
      heads.push_back(mask_of(queries, shape, head, keys));
    }
    return ranges_of(heads, queries.q_len, kBlock);
  }

 private:
  BlockMask mask_of(const LayerQueries& queries, const LayerShape& shape, int64_t head,
                    const std::vector<kernels::PackedMatrix>& keys) const {
    const int64_t n = queries.q_len, width = stride_ * shape.head_dim, groups = blocks_of(n, stride_);
    const std::vector<float> rows =
        grouped(queries.q + head * shape.head_dim, n, queries.q_stride, shape.head_dim, stride_, /*reversed=*/true);
    BlockMask mask(blocks_of(n, kBlock));
    const int64_t in_block = kBlock / stride_, together = kTogether / stride_;
    std::vector<float> scores;
    for (int64_t first = 0; first < groups; first += together) {
      const int64_t count = std::min(together, groups - first), seen = first + count;
      scores.resize(static_cast<size_t>(count * seen));
      for (int64_t part = 0; part * together < seen; ++part) {
        kernels::matmul({.x = &rows[first * width],
                         .m = count,
                         .x_stride = width,
                         .w = &keys[part],
                         .y = &scores[part * together],
                         .y_stride = seen});
      }
      for (int64_t row = 0; row < count; row += in_block) {
        const int64_t here = std::min(in_block, count - row);
        choose(std::span(scores).subspan(static_cast<size_t>(row * seen), static_cast<size_t>(here * seen)), here,
               first + row, attention_scale(shape), n, mask);
      }
    }
    return mask;
  }

  /// Chooses the blocks of one block of queries by the scores of its groups [rows, seen]; `first` is its first group.
  void choose(std::span<float> scores, int64_t rows, int64_t first, float scale, int64_t n, BlockMask& mask) const {
    const int64_t seen = std::ssize(scores) / rows, in_block = kBlock / stride_, own = first / in_block;
    std::vector<float> sums(static_cast<size_t>(own + 1));
    for (int64_t row = 0; row < rows; ++row) {
      const std::span<float> groups =
          scores.subspan(static_cast<size_t>(row * seen), static_cast<size_t>(first + row + 1));
      softmax_rows(groups, 1, scale / static_cast<float>(stride_));
      for (size_t i = 0; i < groups.size(); ++i) sums[i / static_cast<size_t>(in_block)] += groups[i];
    }
    double total = 0;
    for (const float sum : sums) total += sum;
    const bool in_first_chunk = own * kBlock < chunk_of(n);
    std::vector<int32_t> others;
    for (int64_t block = in_first_chunk ? 0 : 1; block < own; ++block) others.push_back(static_cast<int32_t>(block));
    std::ranges::stable_sort(others, [&](int32_t a, int32_t b) { return sums[a] > sums[b]; });
    mask.choose(own, own);
    mask.choose(own, 0);
    double reached = in_first_chunk ? 0 : double{sums[0]} + sums[own];
    double newest = in_first_chunk ? sums[own] : 0;  // counts when the next one has been chosen
    for (const int32_t block : others) {
      if (reached >= threshold_ * total) break;
      mask.choose(own, block);
      reached += in_first_chunk ? std::exchange(newest, sums[block]) : sums[block];
    }
  }

  [[nodiscard]] int64_t chunk_of(int64_t n) const {
    constexpr int64_t kLeast = 2048, kScores = int64_t{128} * 1024 * 2048;
    const auto length = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
    return chunk_.value_or(std::max(std::min(std::max(kLeast, length), kScores / length), kLeast));
  }

  double threshold_ = 0.9;
  int64_t stride_ = 16;
  std::optional<int64_t> chunk_;
};

KVARENA_PREFILL(XAttention, {.name = "xattention",
                             .title = "XAttention",
                             .summary = "Heads attend to the blocks with the largest sums along antidiagonals.",
                             .paper = "arXiv:2503.16428, section 2"});

}  // namespace
}  // namespace kvarena
