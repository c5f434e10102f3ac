#include "reports/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "harness/core/error.h"

namespace kvarena::reports {
namespace {

struct Pairs {
  std::vector<double> method;
  std::vector<double> baseline;
};

void check_prompts(const CellData& method, const CellData& baseline) {
  const auto place = [](const CellData& cell) {
    return fmt::format("{}, {}", cell.row.cell.workload, cell.row.cell.method);
  };
  for (const auto& [sample, ours] : method.prompts) {
    const auto theirs = baseline.prompts.find(sample);
    if (theirs == baseline.prompts.end() || theirs->second == ours) continue;
    fail({.place = fmt::format("{}: sample {}", place(method), sample),
          .found = fmt::format("prompt {:.12} here and {:.12} in {}", ours, theirs->second, place(baseline)),
          .expected = "the same prompt in samples that are paired",
          .action = "judge both with the same data, tokenizer and truncation"});
  }
}

std::optional<Pairs> pairs_of(const CellData& method, const CellData& baseline, const std::string& metric) {
  const auto ours = method.values.find(metric);
  const auto theirs = baseline.values.find(metric);
  if (ours == method.values.end() || theirs == baseline.values.end()) return std::nullopt;
  check_prompts(method, baseline);
  std::unordered_map<std::string, const results::ValueRow*> by_sample;
  for (const results::ValueRow& row : theirs->second.rows) by_sample[row.sample_id] = &row;
  Pairs pairs;
  for (const results::ValueRow& row : ours->second.rows) {
    const auto it = by_sample.find(row.sample_id);
    if (it == by_sample.end()) continue;
    if (!std::isfinite(row.value) || !std::isfinite(it->second->value)) continue;
    pairs.method.push_back(row.value);
    pairs.baseline.push_back(it->second->value);
  }
  if (pairs.method.empty()) return std::nullopt;
  return pairs;
}

Verdict direction_of(double difference, Better better) {
  if (better == Better::neither) return Verdict::differs;
  return (difference > 0) == (better == Better::higher) ? Verdict::better : Verdict::worse;
}

}  // namespace

metrics::ResamplingOptions resampling_for(size_t values) {
  constexpr int64_t kDraws = 2'000'000;
  const int64_t each = kDraws / std::max<int64_t>(1, static_cast<int64_t>(values));
  return {.resamples = std::clamp<int64_t>(each, 400, 10'000)};
}

std::vector<double> finite(std::vector<double> values) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  return values;
}

std::optional<metrics::PairedDifference> pair_cells(const CellData& method, const CellData& baseline,
                                                    const std::string& metric) {
  const auto pairs = pairs_of(method, baseline, metric);
  if (!pairs) return std::nullopt;
  return metrics::paired_difference(pairs->method, pairs->baseline, resampling_for(pairs->method.size()));
}

std::optional<NoiseFloor> noise_floor(const ExperimentData& data, const std::string& workload,
                                      const std::string& metric) {
  const CellData* first = data.find(data.baseline(), workload, results::CellKind::quality);
  const CellData* second = data.find(data.baseline(), workload, results::CellKind::noise_floor);
  if (first == nullptr || second == nullptr || !first->counts() || !second->counts()) return std::nullopt;
  const auto pairs = pairs_of(*second, *first, metric);
  if (!pairs) return std::nullopt;
  double sum = 0;
  for (size_t i = 0; i < pairs->method.size(); ++i) sum += std::abs(pairs->method[i] - pairs->baseline[i]);
  return NoiseFloor{.value = sum / static_cast<double>(pairs->method.size()),
                    .samples = static_cast<int64_t>(pairs->method.size())};
}

Difference verdict_of(const metrics::PairedDifference& paired, double p_value, const std::optional<NoiseFloor>& floor,
                      const MetricLook& look) {
  // The bootstrap of a few equal differences has no width; the permutation test knows how little they prove.
  constexpr double kLevel = 0.05;
  const bool noise = (paired.interval.low <= 0 && paired.interval.high >= 0) || p_value >= kLevel ||
                     (floor && std::abs(paired.difference) <= floor->value);
  return {.value = look.scale * paired.difference,
          .interval = {look.scale * paired.interval.low, look.scale * paired.interval.high},
          .verdict = noise ? Verdict::within_noise : direction_of(paired.difference, look.better)};
}

}  // namespace kvarena::reports
