#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "harness/core/random.h"
#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Heavy hitters by a softened, perturbed attention that corrects for the entries already discarded.
///   f[j,i] = sum over h in group j and all queries t so far of softmax_i((x[h,t,i] + G) / tau_t),
/// x the raw scores, G standard Gumbel noise drawn for (seed, layer, head, query, position), tau = 1 for the prompt and
/// 0.01 more with every step. The budget is split between the newest entries and those with the largest f, after the
/// prompt and after every step; f travels with the entries. gumbel = false leaves the noise out: f is then H2O's sum
/// while tau is 1. The authors' code masks instead of freeing and has a cache for each query head.
/// Adnan, Arunkumar, Jain, Nair, Soloveychik, Kamath 2024, arXiv:2403.09054, section 3.4.
class Keyformer final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("recent_share", recent_share_).min(0).max(1).doc("share of the budget that goes to the newest entries");
    p("tau", tau_).above(0).doc("temperature of the scores for the prompt");
    p("tau_delta", tau_delta_).min(0).doc("added to the temperature with every decode step");
    p("gumbel", gumbel_).doc("whether noise is added to the scores");
    p("seed", seed_).min(0).doc("of the noise");
  }
  Needs needs() const override { return {.window = kWholePrompt, .step_attention = true}; }
  bool evicts_while_decoding() const override { return true; }
  at::Tensor score(const LayerView& layer) const override { return layer.remembered(); }
  Protection protect(int64_t budget) const override {
    return {.recent = static_cast<int64_t>(std::floor(recent_share_ * static_cast<double>(budget) + 1e-9))};
  }

  at::Tensor remember_prompt(const LayerView& layer) const override {
    const int64_t n = layer.n();
    at::Tensor sums = at::zeros({layer.kv_heads(), n}, at::kFloat);
    layer.for_each_query_block(n, [&](const at::Tensor& scores, int64_t first) {
      for (int64_t head = 0; head < layer.q_heads() && gumbel_; ++head) {
        for (int64_t row = 0; row < scores.size(1); ++row) {
          const Noise noise(*this, layer.layer(), layer.first_head() * layer.group() + head, first + row);
          auto* const score = scores[head][row].data_ptr<float>();
          for (int64_t i = 0; i <= first + row; ++i) score[i] += noise.at(i);
        }
      }
      sums.add_(layer.group_sum(scores.div(tau_).softmax(-1).sum(1)));
    });
    return sums.unsqueeze(-1);
  }

  void observe(const StepAttention& step) const override {
    const int64_t group = step.group();
    for (int64_t head = 0; head < step.entries->shape().kv_heads; ++head) {
      const std::span<float> sums = step.entries->remembered(head);
      const std::vector<int32_t> positions = step.entries->positions(head);
      const auto n = static_cast<int64_t>(positions.size());
      const double tau = tau_ + tau_delta_ * static_cast<double>(step.position - step.prompt_tokens + 1);
      for (int64_t voter = 0; voter < group; ++voter) {
        const Noise noise(*this, step.layer, head * group + voter, step.position);
        std::vector<double> weights(positions.size());
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) {
          // log p differs from the raw score by a constant, which softmax does not see.
          const double logit = std::log(static_cast<double>(step.attention[head * group + voter][i]));
          weights[i] = std::exp((logit + (gumbel_ ? noise.at(positions[i]) : 0.0F)) / tau);
          sum += weights[i];
        }
        for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<float>(weights[i] / sum);
      }
    }
  }

 private:
  /// One query's draws.
  class Noise {
   public:
    Noise(const Keyformer& method, int64_t layer, int64_t q_head, int64_t query)
        : stream_(static_cast<uint64_t>(method.seed_), fmt::format("keyformer/{}/{}/{}", layer, q_head, query)) {}
    [[nodiscard]] float at(int64_t position) const {
      const double u = stream_.uniform(static_cast<uint64_t>(position));
      return static_cast<float>(-std::log(-std::log(u + 0x1p-54)));
    }

   private:
    RandomStream stream_;
  };

  double recent_share_ = 0.3;
  double tau_ = 1;
  double tau_delta_ = 0.01;
  bool gumbel_ = true;
  int64_t seed_ = 0;
};

KVARENA_SCORER(Keyformer, {.name = "keyformer",
                           .title = "Keyformer",
                           .summary = "Keeps the entries with the largest sums of a perturbed softmax, and the newest.",
                           .paper = "arXiv:2403.09054, section 3.4"});

}  // namespace
}  // namespace kvarena
