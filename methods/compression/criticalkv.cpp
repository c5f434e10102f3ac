#include <ATen/ATen.h>

#include <limits>

#include "harness/method/wrapping_scorer.h"
#include "kernels/matmul/row_reductions.h"

namespace kvarena {
namespace {

/// Entries whose loss would disturb the output most.  Half of a head's budget goes to its best entries by another
/// method's scores s, the rest to the best of the others by (s[j,i] + eps) P[j,i],
///   P[j,i] = mean over h in group j of || v[j,i] W_O[h] ||_1,  W_O[h] the slice of the output projection.
/// Under the rule "heads" this is the authors' combination with Ada-KV. There, as in the paper, a head's first stage is
/// half of its own budget; kvpress's critical_adakv also spares the head's floor from the second ranking.
/// Decoding keeps everything.  Feng et al. 2025, arXiv:2502.03805, Algorithm 1.
class CriticalKv final : public WrappingScorer {
 public:
  CriticalKv() : WrappingScorer(R"({"name":"snapkv"})") {}

  void parameters(ParameterVisitor& p) override {
    WrappingScorer::parameters(p);
    p("first_stage", first_stage_).min(0).max(1).doc("fraction of the budget that goes by the scores alone");
    p("epsilon", epsilon_).min(0).doc("added to scores before they are weighted");
  }
  Needs needs() const override {
    Needs needs = WrappingScorer::needs();
    needs.output_projection = true;
    return needs;
  }
  bool evicts_while_decoding() const override { return false; }

  void refine(const LayerView& view, LayerScores& scores, HeadBudgets& budgets) const override {
    WrappingScorer::refine(view, scores, budgets);
    const at::Tensor weights = output_norms(view);  // [kv_heads, n]
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      std::vector<float>& row = scores.heads[head];
      const auto sure = static_cast<int64_t>(static_cast<double>(budgets[head]) * first_stage_);
      const auto* const weight = weights[head].data_ptr<float>();
      const std::vector<int32_t> first =
          select_best(row, first_stage_ > 0 ? std::max<int64_t>(1, sure) : 0, protect(budgets[head]));
      for (size_t i = 0; i < row.size(); ++i) row[i] = (row[i] + static_cast<float>(epsilon_)) * weight[i];
      for (const int32_t i : first) row[i] = std::numeric_limits<float>::max();
    }
  }

 private:
  /// P.
  static at::Tensor output_norms(const LayerView& view) {
    const at::Tensor values = view.values().contiguous();                      // [kv_heads, n, head_dim]
    const at::Tensor projection = view.output_projection().mT().contiguous();  // [q_heads, hidden_size, head_dim]
    const int64_t hidden_size = projection.size(1), head_dim = values.size(2);
    at::Tensor norms = at::empty({view.q_heads(), view.n()}, at::kFloat);
    for (int64_t head = 0; head < view.q_heads(); ++head) {
      const kernels::PackedMatrix weights =
          kernels::pack_weights(projection[head].data_ptr<float>(), hidden_size, head_dim, kernels::DType::f32);
      kernels::row_magnitudes({values[head / view.group()].data_ptr<float>(), view.n(), head_dim}, weights,
                              norms[head].data_ptr<float>());
    }
    return view.group_mean(norms).contiguous();
  }

  double first_stage_ = 0.5;
  double epsilon_ = 1e-4;
};

KVARENA_SCORER(CriticalKv, {.name = "criticalkv",
                            .title = "CriticalKV",
                            .summary = "Keeps the entries whose loss would disturb the attention's output most.",
                            .paper = "arXiv:2502.03805, Algorithm 1"});

}  // namespace
}  // namespace kvarena
