#include "metrics/distribution/topk_divergence.h"

#include <algorithm>
#include <cmath>

#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {
namespace {

/// Name of the likeliest token; of equal ones the first.
std::string top_of(const NamedStep& step) {
  const auto top = std::ranges::max_element(step.likeliest, {}, &std::pair<const std::string, double>::second);
  return top == step.likeliest.end() ? "" : top->first;
}

/// The share that is left; never so small that rounding decides.
double rest_of(double named) {
  constexpr double kRounding = 1e-9;
  return std::clamp(1 - named, kRounding, 1.0);
}

}  // namespace

TopkDivergence topk_divergence(const NamedStep& full, const NamedStep& lossy) {
  double sum = 0, named_full = 0, named_lossy = 0;
  const auto add = [&](double log_full, double log_lossy) {
    const double p = std::exp(log_full);
    named_full += p;
    named_lossy += std::exp(log_lossy);
    if (p > 0) sum += p * (log_full - log_lossy);
  };
  for (const auto& [token, log_full] : full.likeliest) {
    if (token == full.token) continue;
    if (const auto other = lossy.likeliest.find(token); other != lossy.likeliest.end()) add(log_full, other->second);
  }
  add(full.log_probability, lossy.log_probability);
  const double p_rest = rest_of(named_full), q_rest = rest_of(named_lossy);
  return {.kl_nats = std::max(0.0, sum + p_rest * std::log(p_rest / q_rest)),
          .top1_agrees = top_of(full) == top_of(lossy),
          .log_probability_lost = full.log_probability - lossy.log_probability};
}

KVARENA_METRIC({.id = "kl_topk",
                .title = "KL from a server's baseline, at least",
                .kind = MetricKind::distribution,
                .unit = "nats",
                .table_scale = 1,
                .better = Better::lower,
                .summary = "KL(baseline || setting) over the likeliest tokens that a server names for both, the rest "
                           "lumped, and the log-probability that the baseline's tokens lose. Never one with \"kl\".",
                .source = "kvarena",
                .stored = {kKlTopk, kLogprobDifference}});

}  // namespace kvarena::metrics
