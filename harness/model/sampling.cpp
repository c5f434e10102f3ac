#include "harness/model/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena {
namespace {

int32_t largest(std::span<const float> logits) {
  const auto bad = std::ranges::find_if(logits, [](float x) { return std::isnan(x); });
  if (bad != logits.end()) {
    fail({.place = "logits",
          .found = fmt::format("not a number at token {}", bad - logits.begin()),
          .expected = "finite logits",
          .action = "the checkpoint or the method's cache holds values that overflow"});
  }
  const auto best = std::ranges::max_element(logits);
  if (best == logits.end() || !std::isfinite(*best)) {
    fail({.place = "logits", .found = "no finite value", .expected = "at least one"});
  }
  return static_cast<int32_t>(best - logits.begin());
}

/// Ids by falling logit, equal logits by rising id.
std::vector<int32_t> ranked(std::span<const float> logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order,
                    [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  return order;
}

/// Number of ranked tokens to keep: at most top_k, and the fewest that reach top_p.
size_t kept(const std::vector<int32_t>& order, const std::vector<double>& p, const SamplingSettings& settings) {
  size_t count = order.size();
  if (settings.top_k > 0) count = std::min(count, static_cast<size_t>(settings.top_k));
  if (settings.top_p >= 1) return count;
  double total = 0;
  for (size_t i = 0; i < count; ++i) total += p[order[i]];
  double reached = 0;
  for (size_t i = 0; i < count; ++i) {
    reached += p[order[i]] / total;
    if (reached >= settings.top_p) return i + 1;
  }
  return count;
}

/// The token whose share of [0, 1) holds `u`.
int32_t draw(const std::vector<double>& p, double u) {
  double below = 0;
  int32_t last = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    below += p[i];
    last = static_cast<int32_t>(i);
    if (u < below) return last;
  }
  return last;  // u fell into the rounding above the sum
}

}  // namespace

std::vector<double> sampling_distribution(std::span<const float> logits, const SamplingSettings& settings) {
  const int32_t best = largest(logits);
  std::vector<double> p(logits.size(), 0.0);
  if (settings.greedy()) {
    p[best] = 1;
    return p;
  }
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = std::exp((static_cast<double>(logits[i]) - logits[best]) / settings.temperature);
  }
  if (settings.top_k > 0 || settings.top_p < 1) {
    const std::vector<int32_t> order = ranked(logits);
    for (size_t i = kept(order, p, settings); i < order.size(); ++i) p[order[i]] = 0;
  }
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

int32_t sample(std::span<const float> logits, const SamplingSettings& settings, uint64_t index) {
  if (settings.greedy()) return largest(logits);
  return draw(sampling_distribution(logits, settings), RandomStream(settings.seed, "sample").uniform(index));
}

Draft sample_draft(std::span<const float> logits, const SamplingSettings& settings, uint64_t index) {
  Draft draft{.distribution = sampling_distribution(logits, settings)};
  draft.token = draw(draft.distribution, RandomStream(settings.seed, "draft").uniform(index));
  return draft;
}

int32_t sample_verified(std::span<const float> logits, const SamplingSettings& settings, uint64_t index,
                        const Draft& draft) {
  std::vector<double> p = sampling_distribution(logits, settings);
  const auto q = [&](size_t token) {
    if (draft.distribution.empty()) return static_cast<int32_t>(token) == draft.token ? 1.0 : 0.0;
    return token < draft.distribution.size() ? draft.distribution[token] : 0.0;
  };
  const double u = RandomStream(settings.seed, "accept").uniform(index);
  if (u * q(draft.token) < p[draft.token]) return draft.token;
  double rest = 0;
  for (size_t i = 0; i < p.size(); ++i) rest += p[i] = std::max(p[i] - q(i), 0.0);
  for (double& x : p) x /= rest;
  return draw(p, RandomStream(settings.seed, "residual").uniform(index));
}

}  // namespace kvarena
