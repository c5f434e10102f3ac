#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/distribution/divergence.h"
#include "metrics/registry.h"
#include "metrics/statistics.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {
namespace {

constexpr size_t kLanes = 8;  // independent sums: what lets the compiler use vector registers without reordering freely

// e^x for x <= 0 without a branch or a library call, so that loops over a vocabulary vectorise. Below -700 the result
// is 0. Error below 2 units in the last place: x = k ln2 + r with |r| <= ln2/2, Taylor to r^13.
inline double exp_nonpositive(double x) {
  constexpr double kMagic = 0x1.8p52;  // adding it rounds to an integer, left in the low bits
  const double clamped = x < -700 ? -700 : x;
  const double shifted = clamped * 0x1.71547652b82fep0 + kMagic;
  const double k = shifted - kMagic;
  const double r = (clamped - k * 0x1.62e42fefa3800p-1) - k * 0x1.ef35793c76730p-45;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const auto exponent = (std::bit_cast<uint64_t>(shifted) << 52) + std::bit_cast<uint64_t>(p);  // p * 2^k
  const double value = std::bit_cast<double>(exponent);
  return x < -700 ? 0 : value;
}

double total_of(const std::array<double, kLanes>& lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <typename T>
T largest(std::span<const T> row) {
  std::array<T, kLanes> lanes;
  lanes.fill(-std::numeric_limits<T>::infinity());
  const size_t whole = row.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lanes[l] = row[i + l] > lanes[l] ? row[i + l] : lanes[l];
  }
  T best = *std::max_element(lanes.begin(), lanes.end());
  for (size_t i = whole; i < row.size(); ++i) best = std::max(best, row[i]);
  return best;
}

// Sums over the vocabulary that make up one step; both rows are shifted by their maximum and divided by temperature.
struct RowSums {
  double full_mass = 0;      // sum of e^full
  double lossy_mass = 0;     // sum of e^lossy
  double full_weighted = 0;  // sum of e^full (full - lossy)
};

template <typename T>
RowSums sum_rows(std::span<const T> full, std::span<const T> lossy, double full_max, double lossy_max, double scale) {
  std::array<double, kLanes> mass{}, lossy_mass{}, weighted{};
  const auto add = [&](size_t i, size_t lane) {
    const double a = (static_cast<double>(full[i]) - full_max) * scale;
    const double b = (static_cast<double>(lossy[i]) - lossy_max) * scale;
    const double e = exp_nonpositive(a);
    mass[lane] += e;
    lossy_mass[lane] += exp_nonpositive(b);
    weighted[lane] += e == 0 ? 0 : e * (a - b);
  };
  const size_t whole = full.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) add(i + l, l);
  }
  for (size_t i = whole; i < full.size(); ++i) add(i, i - whole);
  return {total_of(mass), total_of(lossy_mass), total_of(weighted)};
}

template <typename T>
StepDivergence step(std::span<const T> full, std::span<const T> lossy, int64_t token, double temperature) {
  KVARENA_ASSERT(full.size() == lossy.size() && !full.empty(),
                 fmt::format("full [{}], lossy [{}]", full.size(), lossy.size()));
  KVARENA_ASSERT(temperature > 0, fmt::format("temperature={}", temperature));
  KVARENA_ASSERT(token >= -1 && token < static_cast<int64_t>(full.size()),
                 fmt::format("token={} vocab_size={}", token, full.size()));
  const T full_max = largest(full);
  const T lossy_max = largest(lossy);
  const double scale = 1 / temperature;
  const RowSums sums = sum_rows(full, lossy, static_cast<double>(full_max), static_cast<double>(lossy_max), scale);
  // log p = shifted logit - log(mass), so KL = sum p (a - b) + log(lossy mass) - log(full mass).
  const double log_masses = std::log(sums.lossy_mass) - std::log(sums.full_mass);
  StepDivergence result;
  const double kl = sums.full_weighted / sums.full_mass + log_masses;
  result.kl_nats = kl < 0 ? 0.0 : kl;  // rounding of equal distributions; NaN passes
  result.top1_agrees = std::find(full.begin(), full.end(), full_max) - full.begin() ==
                       std::find(lossy.begin(), lossy.end(), lossy_max) - lossy.begin();
  if (token >= 0) {
    const auto t = static_cast<size_t>(token);
    const double a = (static_cast<double>(full[t]) - static_cast<double>(full_max)) * scale;
    const double b = (static_cast<double>(lossy[t]) - static_cast<double>(lossy_max)) * scale;
    result.log_ratio_nats = (a - b) + log_masses;
  }
  return result;
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto full = row.at("full_logits").get<std::vector<std::vector<double>>>();
  const auto lossy = row.at("lossy_logits").get<std::vector<std::vector<double>>>();
  const auto tokens = row.at("continuation_ids").get<std::vector<int64_t>>();
  std::vector<StepDivergence> steps;
  nlohmann::json kl = nlohmann::json::array();
  nlohmann::json log_ratio = nlohmann::json::array();
  for (size_t t = 0; t < full.size(); ++t) {
    steps.push_back(step_divergence(full[t], lossy.at(t), tokens.at(t), row.value("temperature", 1.0)));
    kl.push_back(steps.back().kl_nats);
    log_ratio.push_back(steps.back().log_ratio_nats);
  }
  const SequenceDivergence sequence = sequence_divergence(steps);
  return {{"expected",
           {{"kl_per_step", std::move(kl)},
            {"sequence_kl", sequence.kl_nats_sum},
            {"mean_kl", sequence.kl_nats_mean},
            {"log_ratio_per_step", std::move(log_ratio)},
            {"sequence_log_ratio", sequence.log_ratio_nats_sum},
            {"top1_agreement", sequence.top1_agreement}}}};
}

}  // namespace

StepDivergence step_divergence(std::span<const float> full, std::span<const float> lossy, int64_t token,
                               double temperature) {
  return step(full, lossy, token, temperature);
}

StepDivergence step_divergence(std::span<const double> full, std::span<const double> lossy, int64_t token,
                               double temperature) {
  return step(full, lossy, token, temperature);
}

double kl_nats(std::span<const float> full, std::span<const float> lossy, double temperature) {
  return step(full, lossy, -1, temperature).kl_nats;
}

double kl_nats(std::span<const double> full, std::span<const double> lossy, double temperature) {
  return step(full, lossy, -1, temperature).kl_nats;
}

SequenceDivergence sequence_divergence(std::span<const StepDivergence> steps) {
  SequenceDivergence result;
  if (steps.empty()) return result;
  std::vector<double> kl;
  int64_t agreed = 0;
  for (const StepDivergence& s : steps) {
    kl.push_back(s.kl_nats);
    result.kl_nats_sum += s.kl_nats;
    result.log_ratio_nats_sum += s.log_ratio_nats;
    agreed += s.top1_agrees;
  }
  result.steps = static_cast<int64_t>(steps.size());
  result.kl_nats_mean = result.kl_nats_sum / static_cast<double>(steps.size());
  result.kl_nats_p95 = percentile(kl, 95);
  result.top1_agreement = static_cast<double>(agreed) / static_cast<double>(steps.size());
  return result;
}

KVARENA_METRIC(
    {.id = "kl",
     .title = "KL from the full cache",
     .kind = MetricKind::distribution,
     .unit = "nats",
     .table_scale = 1,
     .better = Better::lower,
     .summary = "KL(full || lossy) over the whole vocabulary on the same prefix; per step, and as the sum over "
                "a request's steps. Needs logits of both caches along one continuation.",
     .source = "VeriCache, Equations 1-2",
     .stored = {kKlNats, kKlNatsSum, kTop1Agreement},
     .vectors = {{"kl", recompute}}});

}  // namespace kvarena::metrics
