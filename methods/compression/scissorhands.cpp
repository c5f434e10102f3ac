#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// What was unimportant stays unimportant.  Of the last `history` queries, count for every entry those that gave it
/// less than an equal share, a[t,i] < 1 / (entries t sees), a the mean over the group of a kv head. After the prompt
/// the entries with the largest counts leave until the budget B is met; while decoding, as soon as a head holds more
/// than B, the drop_fraction B entries with the largest counts leave at once. Among equals the older entry leaves. The
/// newest `recent` entries stay. Layers share the budget equally; the paper gives later layers more (rule "layers").
/// Liu, Desai et al. 2023, arXiv:2305.17118, Algorithm 1 (no code was published; history and recent as in the
/// re-implementation AnswerDotAI/cold-compress).
class Scissorhands final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("history", history_).min(1).doc("newest queries that are counted");
    p("recent", recent_).min(0).doc("newest entries, always kept");
    p("drop_fraction", drop_).min(0).max(1).doc("fraction of the budget that leaves at once while decoding");
  }
  Needs needs() const override { return {.window = history_, .step_attention = true}; }
  bool evicts_while_decoding() const override { return true; }
  Protection protect(int64_t /*budget*/) const override { return {.recent = recent_}; }

  /// Entries in order of count, larger first, then of age: their rank, which a float holds exactly.
  at::Tensor score(const LayerView& layer) const override {
    const int64_t n = layer.n();
    at::Tensor counts = at::zeros({layer.kv_heads(), n}, at::kLong);
    for (int64_t column = 0; column < remembered_width(); ++column) {
      const at::Tensor bits = layer.remembered(column);
      for (int64_t head = 0; head < layer.kv_heads(); ++head) {
        const auto* const from = bits[head].data_ptr<float>();
        auto* const to = counts[head].data_ptr<int64_t>();
        for (int64_t i = 0; i < n; ++i) to[i] += std::popcount(static_cast<uint32_t>(from[i]));
      }
    }
    const at::Tensor order =
        (counts.mul(-n) + at::arange(n, at::kLong)).argsort(-1, /*descending=*/false);  // least important first
    at::Tensor ranks = at::empty({layer.kv_heads(), n}, at::kLong);
    ranks.scatter_(1, order, at::arange(n, at::kLong).expand_as(order));
    return ranks.to(at::kFloat);
  }

  void refine(const LayerView& view, LayerScores& /*scores*/, HeadBudgets& budgets) const override {
    if (!view.decoding()) return;
    for (int64_t& budget : budgets) {
      if (view.n() <= budget) continue;
      const auto leaving = static_cast<int64_t>(drop_ * static_cast<double>(budget));
      budget = std::max<int64_t>(1, std::min(budget, view.n() - leaving));
    }
  }

  /// A bit for each query of the history, 24 to a number.
  int64_t remembered_width() const override { return (history_ + kBits - 1) / kBits; }

  at::Tensor remember_prompt(const LayerView& layer) const override {
    const int64_t n = layer.n();
    at::Tensor bits = at::zeros({layer.kv_heads(), n, remembered_width()}, at::kFloat);
    layer.for_each_query_block(history_, [&](const at::Tensor& scores, int64_t first) {
      const at::Tensor p = scores.softmax(-1).view({layer.kv_heads(), layer.group(), -1, n}).mean(1);
      for (int64_t row = 0; row < p.size(1); ++row) {
        const int64_t seen = first + row + 1;
        const at::Tensor low = p.select(1, row).narrow(1, 0, seen).lt(1.0 / static_cast<double>(seen));
        bits.select(2, slot(first + row) / kBits).narrow(1, 0, seen).add_(low, bit(first + row));
      }
    });
    return bits;
  }

  void observe(const StepAttention& step) const override {
    const int64_t group = step.group();
    const int64_t width = remembered_width();
    for (int64_t head = 0; head < step.entries->shape().kv_heads; ++head) {
      const std::span<float> bits = step.entries->remembered(head);
      const int64_t n = step.entries->entries(head);
      for (int64_t i = 0; i < n; ++i) {
        float p = 0;
        for (int64_t voter = 0; voter < group; ++voter) p += step.attention[head * group + voter][i];
        const bool low = p / static_cast<float>(group) < 1.0F / static_cast<float>(n);
        float& word = bits[i * width + slot(step.position) / kBits];
        const bool was = (static_cast<uint32_t>(word) >> (slot(step.position) % kBits) & 1U) != 0;
        if (low != was) word += low ? bit(step.position) : -bit(step.position);
      }
    }
  }

 private:
  static constexpr int64_t kBits = 24;  // whole numbers that a float holds
  /// A query's place in the ring.
  [[nodiscard]] int64_t slot(int64_t position) const { return position % history_; }
  [[nodiscard]] float bit(int64_t position) const { return static_cast<float>(1U << (slot(position) % kBits)); }

  int64_t history_ = 400;
  int64_t recent_ = 10;
  double drop_ = 0.5;
};

KVARENA_SCORER(Scissorhands, {.name = "scissorhands",
                              .title = "Scissorhands",
                              .summary = "Evicts in batches the entries that most of the last queries ignored.",
                              .paper = "arXiv:2305.17118, Algorithm 1"});

}  // namespace
}  // namespace kvarena
