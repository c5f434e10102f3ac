#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Keeps what the last query attends to:  s[i] = mean over all query heads of a[h,last,i], the same for every kv head;
/// after the prompt and after every step, when exactly one entry leaves. The newest entry may go, as in the authors'
/// code; kvpress keeps it (keep_newest) and acts after the prompt alone. gqa = "group" takes the mean of each kv head's
/// own group instead, as in EasyKV; so does a layer whose heads hold different numbers of entries. Oren, Hassid,
/// Yarden, Adi, Schwartz 2024, arXiv:2401.06104, section 3.2.
class Tova final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("keep_newest", keep_newest_).doc("whether the newest entry is kept whatever its score");
    p("gqa", gqa_).one_of({"all", "group"}).doc("mean over all query heads of the layer, or over each kv head's own");
  }
  Needs needs() const override { return {.window = 1, .step_attention = true}; }

  at::Tensor score(const LayerView& layer) const override { return layer.entry_scores(); }
  Protection protect(int64_t /*budget*/) const override { return {.recent = keep_newest_ ? 1 : 0}; }
  bool evicts_while_decoding() const override { return true; }

  at::Tensor remember_prompt(const LayerView& layer) const override {
    const at::Tensor last = layer.window_attention(1);  // [q_heads, n]
    if (gqa_ == "group") return layer.group_mean(last).unsqueeze(-1);
    return last.mean(0, /*keepdim=*/true).expand({layer.kv_heads(), layer.n()}).unsqueeze(-1);
  }

  void observe(const StepAttention& step) const override {
    const int64_t kv_heads = step.entries->shape().kv_heads;
    bool equal = gqa_ == "all";
    for (int64_t head = 1; head < kv_heads; ++head)
      equal = equal && step.entries->entries(head) == step.entries->entries(0);
    const int64_t voters = equal ? kv_heads * step.group() : step.group();
    for (int64_t head = 0; head < kv_heads; ++head) {
      const std::span<float> mean = step.entries->entry_scores(head);
      std::ranges::fill(mean, 0.0F);
      for (int64_t voter = 0; voter < voters; ++voter) {
        const std::vector<float>& row = step.attention[(equal ? 0 : head * step.group()) + voter];
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += row[i] / static_cast<float>(voters);
      }
    }
  }

 private:
  bool keep_newest_ = false;
  std::string gqa_ = "all";
};

KVARENA_SCORER(Tova, {.name = "tova",
                      .title = "TOVA",
                      .summary = "Keeps what the newest query attends to.",
                      .paper = "arXiv:2401.06104, section 3.2"});

}  // namespace
}  // namespace kvarena
