#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "harness/method/scorer.h"
#include "kernels/attention_sums/attention_sums.h"

namespace kvarena {
namespace {

/// Sums of p and p^2 over the prompt's queries for every entry, p the mean over the group of its kv head.
class Moments final : public PromptStatistic {
 public:
  std::string id() const override { return "moments of attention"; }
  int64_t width() const override { return 2; }
  std::optional<kernels::SumOfQueries> sum(int64_t /*layer*/, int64_t /*tokens*/) const override {
    return kernels::MomentSums{};
  }
};

/// Mean attention, for entries whose attention is steady.  Of the probabilities p that entry i received since it came
/// (mean over the group of its kv head; c of them): mean_i = sum p / c, std_i = sqrt(sum p^2 / c - mean_i^2). Entries
/// that swing (large std) may matter again and are spared: of size - B entries that must leave a budget B, all come
/// from the F entries with the smallest std, and are those with the smallest mean there. The newest `spared` entries
/// are no candidates unless nothing else is left. F = B - recent while decoding, one entry a step, recent = int(0.3 B);
/// after the prompt, which is read in one stride, F = max(B - recent - sinks, size - B) with recent = int(0.1 B) and
/// the sinks spared too: the authors' encoding mode. Keys keep their rotation. Ren, Zhu 2024, arXiv:2402.06262, section
/// 4; DRSY/EasyKV, easykv.py.
class RoCo final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("sinks", sinks_).min(0).doc("first entries, kept when the prompt is compressed");
    p("spared", spared_).min(0).doc("newest entries whose deviation says nothing yet: kept");
    p("prompt_recent_share", prompt_recent_).min(0).max(1).doc("narrows the candidates after the prompt");
    p("recent_share", recent_).min(0).max(1).doc("narrows the candidates while decoding");
  }
  Needs needs() const override { return {.step_attention = true, .statistics = {std::make_shared<Moments>()}}; }
  bool evicts_while_decoding() const override { return true; }

  at::Tensor score(const LayerView& layer) const override { return mean(layer); }

  void refine(const LayerView& view, LayerScores& scores, HeadBudgets& budgets) const override {
    const at::Tensor deviations = deviation(view).contiguous();
    const int64_t n = view.n();
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      if (budgets[head] >= n) continue;
      std::vector<float>& row = scores.heads[head];
      const auto* const deviation = deviations[head].data_ptr<float>();
      std::vector<float> steady(static_cast<size_t>(n));  // larger is steadier
      for (int64_t i = 0; i < n; ++i) {
        const bool spared = i >= n - spared_ || (!view.decoding() && i < sinks_);
        steady[i] = spared ? std::numeric_limits<float>::lowest() : -deviation[i];
      }
      std::vector<bool> candidate(static_cast<size_t>(n), false);
      for (const int32_t i : select_best(steady, candidates(view, budgets[head]), {})) candidate[i] = true;
      for (int64_t i = 0; i < n; ++i) {
        if (!candidate[i]) row[i] = std::numeric_limits<float>::max();
      }
    }
  }

  int64_t score_width() const override { return 3; }  // sum p, sum p^2, c

  at::Tensor remember_prompt(const LayerView& layer) const override {
    const int64_t n = layer.n();
    const at::Tensor queries = at::arange(n, 0, -1, at::kFloat).view({1, n, 1}).expand({layer.kv_heads(), n, 1});
    return at::cat({layer.prompt_statistic(Moments()), queries}, 2);
  }

  void observe(const StepAttention& step) const override {
    const int64_t group = step.group();
    for (int64_t head = 0; head < step.entries->shape().kv_heads; ++head) {
      const std::span<float> sums = step.entries->entry_scores(head);
      for (int64_t i = 0; i < step.entries->entries(head); ++i) {
        float p = 0;
        for (int64_t voter = 0; voter < group; ++voter) p += step.attention[head * group + voter][i];
        p /= static_cast<float>(group);
        sums[3 * i] += p;
        sums[3 * i + 1] += p * p;
        sums[3 * i + 2] += 1;
      }
    }
  }

 private:
  /// An entry that no query has seen yet counts as seen once.
  static at::Tensor mean(const LayerView& view) { return view.entry_scores(0) / view.entry_scores(2).clamp_min(1); }
  static at::Tensor deviation(const LayerView& view) {
    const at::Tensor square = view.entry_scores(1) / view.entry_scores(2).clamp_min(1);
    return (square - mean(view).square()).clamp_min(0).sqrt();
  }

  [[nodiscard]] int64_t candidates(const LayerView& view, int64_t budget) const {
    const double share = view.decoding() ? recent_ : prompt_recent_;
    const auto recent = static_cast<int64_t>(share * static_cast<double>(budget));
    const int64_t sinks = view.decoding() ? 0 : sinks_;
    const int64_t unspared = view.n() - spared_ - sinks;
    return std::max(std::min(budget - recent - sinks, unspared), view.n() - budget);
  }

  int64_t sinks_ = 4;
  int64_t spared_ = 10;
  double prompt_recent_ = 0.1;
  double recent_ = 0.3;
};

KVARENA_SCORER(RoCo, {.name = "roco",
                      .title = "RoCo",
                      .summary = "Evicts entries whose attention is small on average and steady.",
                      .paper = "arXiv:2402.06262, section 4"});

}  // namespace
}  // namespace kvarena
