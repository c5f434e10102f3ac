#pragma once
// How far two servers' distributions are apart where each names no more than its likeliest tokens.

#include <map>
#include <string>

namespace kvarena::metrics {

/// One step as a server tells it: the token of a given continuation, and its likeliest tokens. Natural logarithms.
struct NamedStep {
  std::string token;
  double log_probability = 0;  // of the token
  std::map<std::string, double> likeliest;
};

struct TopkDivergence {
  /// KL(full || lossy) in nats over the tokens that both name, all others lumped into one: at most the KL over the
  /// vocabulary (data processing), and 0 for equal steps.
  double kl_nats = 0;
  bool top1_agrees = false;         ///< of the tokens named; true where neither names one
  double log_probability_lost = 0;  ///< log p_full(token) - log p_lossy(token)
};

[[nodiscard]] TopkDivergence topk_divergence(const NamedStep& full, const NamedStep& lossy);

}  // namespace kvarena::metrics
