#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/method/prompt_blocks.h"
#include "kernels/cell_scores/cell_scores.h"

namespace kvarena {
namespace {

/// Skips the softmax and the values of blocks that a flash attention would find negligible as it goes from left to
/// right: with a block's scores s, a row's largest score so far m (this block's too) and a prompt of n tokens, a block
/// of queries attends to a block of keys where for any of its rows
///   max(s) - m > ln(scale / n)
/// Yuan et al. 2025, BLASST, arXiv:2512.12087, section 3: the threshold falls with the length; "skip_softmax" of
/// TensorRT-LLM, whose example scale this is, and flash_skip_softmax.py of NVIDIA/Model-Optimizer (a2fbac7). All scores
/// are computed, those of attended blocks twice: once here and once in the attention itself, where fused kernels
/// compute them once. A prompt of at most `scale` tokens, whose threshold would be above 0, attends to everything.
class SkipSoftmax final : public PrefillPattern {
 public:
  void parameters(ParameterVisitor& p) override {
    p("scale", scale_)
        .above(0)
        .doc("threshold of e^(block's largest score - largest so far), times the prompt's length");
    p("block", block_).min(16).doc("queries, and keys, that are left out together");
  }

  PromptRanges attended(const LayerContext& layer, const LayerQueries& queries) const override {
    const EntrySegment& entries = layer.cache.tail();
    if (static_cast<double>(queries.q_len) <= scale_) return {};
    std::vector<BlockMask> heads;
    for (int64_t head = 0; head < entries.shape().q_heads; ++head) heads.push_back(mask_of(entries, queries, head));
    return ranges_of(heads, queries.q_len, block_);
  }

 private:
  BlockMask mask_of(const EntrySegment& entries, const LayerQueries& queries, int64_t head) const {
    const LayerShape& shape = entries.shape();
    const kernels::Cells keys{.kind = kernels::CellKind::keys,
                              .dtype = shape.dtype,
                              .head_dim = shape.head_dim,
                              .data = const_cast<void*>(entries.run(head / shape.group()).keys)};
    BlockMask mask(blocks_of(queries.q_len, block_));
    std::vector<float> scores(static_cast<size_t>(block_ * queries.q_len));
    for (int64_t row = 0; row < mask.blocks(); ++row) {
      const int64_t first = row * block_, count = std::min(block_, queries.q_len - first), seen = first + count;
      kernels::cell_scores(queries.q + first * queries.q_stride + head * shape.head_dim, count, queries.q_stride, keys,
                           seen, scores.data(), seen);
      for (int64_t t = 0; t < count; ++t)
        keep_blocks(std::span(scores).subspan(static_cast<size_t>(t * seen), static_cast<size_t>(first + t + 1)),
                    attention_scale(shape), std::log(scale_ / static_cast<double>(queries.q_len)), row, mask);
    }
    return mask;
  }

  /// Chooses the blocks that one row keeps by the scores of what it sees.
  void keep_blocks(std::span<const float> scores, float scale, double threshold, int64_t row, BlockMask& mask) const {
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t block = 0; block * block_ < std::ssize(scores); ++block) {
      const auto begin = scores.begin() + block * block_;
      const float own = *std::max_element(begin, std::min(begin + block_, scores.end()));
      largest = std::max(largest, own);
      if (double{own - largest} * scale > threshold) mask.choose(row, block);
    }
  }

  double scale_ = 1000;
  int64_t block_ = 128;
};

KVARENA_PREFILL(SkipSoftmax, {.name = "skip_softmax",
                              .title = "Skip-softmax",
                              .summary = "Leaves out blocks whose scores lie far below the largest ones before them.",
                              .paper = "arXiv:2512.12087, section 3"});

}  // namespace
}  // namespace kvarena
