#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "harness/core/random.h"
#include "harness/method/scorer.h"
#include "kernels/attention_sums/attention_sums.h"
#include "kernels/attention_sums/gumbel_noise.h"

namespace kvarena {
namespace {

/// One query's draws, one for each position.
uint64_t noise_key(int64_t seed, int64_t layer, int64_t q_head, int64_t query) {
  const RandomStream stream(static_cast<uint64_t>(seed), fmt::format("keyformer/{}/{}", layer, q_head));
  return stream.bits(static_cast<uint64_t>(query));
}

/// The prompt's share of f.
class PromptSums final : public PromptStatistic {
 public:
  PromptSums(double tau, bool gumbel, int64_t seed) : tau_(tau), gumbel_(gumbel), seed_(seed) {}
  std::string id() const override {
    return fmt::format("keyformer tau {}{}", tau_, gumbel_ ? fmt::format(" seed {}", seed_) : "");
  }
  int64_t width() const override { return 1; }
  std::optional<kernels::SumOfQueries> sum(int64_t layer, int64_t /*tokens*/) const override {
    kernels::PerturbedSum sum{.tau = static_cast<float>(tau_), .noise = nullptr};
    if (gumbel_) {
      sum.noise = [seed = seed_, layer](int64_t q_head, int64_t position) {
        return noise_key(seed, layer, q_head, position);
      };
    }
    return sum;
  }

 private:
  double tau_;
  bool gumbel_;
  int64_t seed_;
};

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
  Needs needs() const override {
    return {.step_attention = true, .statistics = {std::make_shared<PromptSums>(prompt_sums())}};
  }
  bool evicts_while_decoding() const override { return true; }
  at::Tensor score(const LayerView& layer) const override { return layer.entry_scores(); }
  Protection protect(int64_t budget) const override {
    return {.recent = static_cast<int64_t>(std::floor(recent_share_ * static_cast<double>(budget) + 1e-9))};
  }

  at::Tensor remember_prompt(const LayerView& layer) const override { return layer.prompt_statistic(prompt_sums()); }

  void observe(const StepAttention& step) const override {
    const int64_t group = step.group();
    for (int64_t head = 0; head < step.entries->shape().kv_heads; ++head) {
      const std::span<float> sums = step.entries->entry_scores(head);
      const std::vector<int32_t> positions = step.entries->positions(head);
      const auto n = static_cast<int64_t>(positions.size());
      const double tau = tau_ + tau_delta_ * static_cast<double>(step.position - step.prompt_tokens + 1);
      for (int64_t voter = 0; voter < group; ++voter) {
        const uint64_t noise = noise_key(seed_, step.layer, head * group + voter, step.position);
        std::vector<double> weights(positions.size());
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) {
          // log p differs from the raw score by a constant, which softmax does not see.
          double weight = step.attention[head * group + voter][i];
          if (gumbel_) weight *= kernels::gumbel_factor(noise, positions[i]);
          weights[i] = std::pow(weight, 1 / tau);
          sum += weights[i];
        }
        for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<float>(weights[i] / sum);
      }
    }
  }

 private:
  [[nodiscard]] PromptSums prompt_sums() const { return {tau_, gumbel_, seed_}; }

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
