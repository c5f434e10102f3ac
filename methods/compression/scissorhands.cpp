#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "harness/method/scorer.h"
#include "kernels/attention_sums/attention_sums.h"

namespace kvarena {
namespace {

/// The bits of the prompt's last queries.
class Ignored final : public PromptStatistic {
 public:
  explicit Ignored(int64_t history) : history_(history) {}
  std::string id() const override { return fmt::format("ignored by the last {} queries", history_); }
  int64_t width() const override { return of(0).words(); }
  std::optional<kernels::SumOfQueries> sum(int64_t /*layer*/, int64_t tokens) const override { return of(tokens); }

 private:
  [[nodiscard]] kernels::IgnoredQueries of(int64_t tokens) const {
    return {.history = history_, .first = tokens - history_};
  }

  int64_t history_;
};

/// Persistence of importance: what was unimportant stays unimportant.  Of the last `history` queries, count for every
/// entry those that gave it less than an equal share, a[t,i] < 1 / (entries t sees), a the mean over the group of a kv
/// head. After the prompt the entries with the largest counts leave until the budget B is met; while decoding, as soon
/// as a head holds more than B, the drop_fraction B entries with the largest counts leave at once. Among equals the
/// older entry leaves. The newest `recent` entries stay. Layers share the budget equally; the paper gives later layers
/// more (rule "layers"). Liu, Desai et al. 2023, arXiv:2305.17118, Algorithm 1 (no code was published; history and
/// recent as in the re-implementation AnswerDotAI/cold-compress).
class Scissorhands final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("history", history_).min(1).doc("newest queries that are counted");
    p("recent", recent_).min(0).doc("newest entries, always kept");
    p("drop_fraction", drop_).min(0).max(1).doc("fraction of the budget that leaves at once while decoding");
  }
  Needs needs() const override { return {.step_attention = true, .statistics = {std::make_shared<Ignored>(history_)}}; }
  bool evicts_while_decoding() const override { return true; }
  Protection protect(int64_t /*budget*/) const override { return {.recent = recent_}; }

  /// Entries in order of count, larger first, then of age: their rank, which a float holds exactly.
  at::Tensor score(const LayerView& layer) const override {
    const int64_t n = layer.n();
    at::Tensor counts = at::zeros({layer.kv_heads(), n}, at::kLong);
    for (int64_t column = 0; column < score_width(); ++column) {
      const at::Tensor bits = layer.entry_scores(column);
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

  int64_t score_width() const override { return ring().words(); }
  at::Tensor remember_prompt(const LayerView& layer) const override {
    return layer.prompt_statistic(Ignored(history_));
  }

  void observe(const StepAttention& step) const override {
    const int64_t group = step.group();
    const int64_t width = score_width();
    for (int64_t head = 0; head < step.entries->shape().kv_heads; ++head) {
      const std::span<float> bits = step.entries->entry_scores(head);
      const int64_t n = step.entries->entries(head);
      for (int64_t i = 0; i < n; ++i) {
        float p = 0;
        for (int64_t voter = 0; voter < group; ++voter) p += step.attention[head * group + voter][i];
        const bool low = p / static_cast<float>(group) < 1.0F / static_cast<float>(n);
        float& word = bits[i * width + ring().word(step.position)];
        const uint32_t bit = ring().bit(step.position);
        const bool was = (static_cast<uint32_t>(word) & bit) != 0;
        if (low != was) word += low ? static_cast<float>(bit) : -static_cast<float>(bit);
      }
    }
  }

 private:
  [[nodiscard]] kernels::IgnoredQueries ring() const { return {.history = history_}; }

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
