#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Entries leave in the order in which they were last used.  Each step stamps entries of a kv head with its time: the
/// share of them that its attention ranks first, the largest probability of the group's query heads, or with `alpha`
/// those with at least that much; its own entry always. The oldest stamps leave, of equals the oldest entries.
/// Milestones of a chain of thought so stay while steps come back to them. The paper's form is with "protect_prompt":
/// the prompt stays whole and counts in the ranks. Without it the prompt competes, stamped with its positions. Hu,
/// Huang, Wang, Li, Hu, Liu, Chen, Xie, Shan 2025, arXiv:2502.11147, section 3.2: half of the tokens a step, which
/// there is an alpha of about 0.0001. No code by the authors is public. Their system estimates attention by pages of 16
/// and evicts these (section 3.3), to suit fast kernels; entries have their exact attention here.
class Raas final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("share", share_).above(0).max(1).doc("of a head's entries, which each step stamps; at least one");
    p("alpha", alpha_).above(0).max(1).doc("in its place: the attention from which an entry is stamped");
  }
  Needs needs() const override { return {.step_attention = true}; }
  bool evicts_while_decoding() const override { return true; }

  at::Tensor remember_prompt(const LayerView& layer) const override {
    return layer.positions().to(at::kFloat).unsqueeze(-1);
  }
  void observe(const StepAttention& step) const override {
    for (int64_t head = 0; head < step.entries->shape().kv_heads; ++head) {
      const std::span<float> stamps = step.entries->entry_scores(head);
      const auto seen = std::ssize(stamps) - step.unseen;
      std::vector<float> used(static_cast<size_t>(seen));
      for (int64_t row = head * step.group(); row < (head + 1) * step.group(); ++row) {
        for (int64_t i = 0; i < seen; ++i) used[i] = std::max(used[i], step.attention[row][i]);
      }
      const float least = alpha_ ? static_cast<float>(*alpha_) : share_begins(used);
      const auto now = static_cast<float>(step.position);
      for (int64_t i = 0; i < seen; ++i) {
        if (used[i] >= least) stamps[i] = now;
      }
      stamps[seen - 1] = now;
    }
  }
  /// Places in the order of stamps, and of positions among equal ones.
  at::Tensor score(const LayerView& layer) const override {
    const at::Tensor times = layer.entry_scores().to(at::kDouble) + layer.positions().to(at::kDouble) * 0x1p-26;
    constexpr int64_t kOverEntries = 1;
    const at::Tensor order = times.argsort(kOverEntries);
    const at::Tensor places = at::arange(layer.n(), at::kFloat).expand_as(order);
    return at::empty(order.sizes(), at::kFloat).scatter_(kOverEntries, order, places);
  }

 private:
  /// The smallest attention of the share that a step stamps.
  [[nodiscard]] float share_begins(std::vector<float> used) const {
    const auto count = static_cast<int64_t>(share_ * static_cast<double>(used.size()) + 1e-9);
    const auto last = used.begin() + std::max<int64_t>(0, count - 1);
    std::ranges::nth_element(used, last, std::ranges::greater());
    return *last;
  }

  double share_ = 0.5;
  std::optional<double> alpha_;
};

KVARENA_SCORER(Raas, {.name = "raas",
                      .title = "RaaS",
                      .summary = "Keeps the entries that steps used last.",
                      .paper = "arXiv:2502.11147, section 3.2"});

}  // namespace
}  // namespace kvarena
