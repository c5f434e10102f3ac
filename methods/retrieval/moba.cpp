#include <algorithm>
#include <limits>

#include "harness/method/entry_scores.h"
#include "harness/method/head_lists.h"

namespace kvarena {
namespace {

/// Mean key of each block of entries.
struct BlockMeans final : public LayerIndex {
  explicit BlockMeans(HeadLists<float> means) : heads(std::move(means)) {}

  HeadLists<float> heads;  // [kv_heads] of [blocks, head_dim]

  [[nodiscard]] int64_t bytes() const override { return heads.bytes(); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<BlockMeans>(HeadLists(heads, ledger));
  }
};

/// The gate of mixture of block attention, which has no weights.  Each query head attends to the blocks with the
/// largest q . (mean key of the block), the budget's worth of them, its own block always among these. Entries made
/// after the prompt fall into blocks like the prompt's. Models are trained with such a gate (blocks of 512, 3 of them
/// at 8k tokens); on others it is a retriever by block means. Prompts are attended in full here. Lu, Jiang et al. 2025,
/// arXiv:2502.13189, section 2.2; MoonshotAI/MoBA, moba_naive.py.
class Moba final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override { p("block", block_).min(1).doc("entries of a block"); }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    return std::make_unique<BlockMeans>(HeadLists<float>(shape.kv_heads, ledger));
  }

  /// Reads the block where the index ends again: drafts may have been taken back.
  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    const int64_t d = entries.shape().head_dim, first = index.entries / block_, blocks = blocks_of(end);
    std::vector<float> keys(static_cast<size_t>((end - first * block_) * d));
    auto& heads = static_cast<BlockMeans&>(index).heads;
    for (int64_t head = 0; head < heads.heads(); ++head) {
      entries.read_some(head, first * block_, end - first * block_, keys.data(), nullptr, d);
      heads[head].resize(static_cast<size_t>(blocks * d));
      for (int64_t block = first; block < blocks; ++block) {
        const int64_t begin = (block - first) * block_, stop = std::min(begin + block_, end - first * block_);
        for (int64_t c = 0; c < d; ++c) {
          double sum = 0;
          for (int64_t i = begin; i < stop; ++i) sum += keys[i * d + c];
          heads[head][block * d + c] = static_cast<float>(sum / static_cast<double>(stop - begin));
        }
      }
    }
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    const LayerShape& shape = entries.shape();
    const int64_t d = shape.head_dim, blocks = blocks_of(index.entries);
    const Candidates all{.last = blocks, .count = std::max<int64_t>(1, among.budget / block_)};
    if (all.count >= blocks) return {};
    Selection selection;
    for (int64_t row = 0; row < shape.q_heads; ++row) {
      const float* const means = static_cast<const BlockMeans&>(index).heads[row / shape.group()].data();
      std::vector<float> gate(static_cast<size_t>(blocks));
      for (int64_t block = 0; block < blocks; ++block) {
        double sum = 0;
        for (int64_t c = 0; c < d; ++c) sum += static_cast<double>(queries.q[row * d + c]) * means[block * d + c];
        gate[block] = static_cast<float>(sum);
      }
      if (among.generated) gate.back() = std::numeric_limits<float>::infinity();  // the query's own
      std::vector<int32_t>& list = selection.lists.emplace_back();
      for (const int64_t block : best_candidates(gate, all, "moba")) {
        for (int64_t i = block * block_; i < std::min((block + 1) * block_, index.entries); ++i) {
          list.push_back(static_cast<int32_t>(i));
        }
      }
    }
    return selection;
  }

 private:
  [[nodiscard]] int64_t blocks_of(int64_t entries) const { return (entries + block_ - 1) / block_; }

  int64_t block_ = 64;
};

KVARENA_RETRIEVER(Moba, {.name = "moba",
                         .title = "MoBA's gate",
                         .summary = "Attends to the blocks whose mean key suits the query, and its own.",
                         .paper = "arXiv:2502.13189, section 2.2"});

}  // namespace
}  // namespace kvarena
