#include "reports/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "harness/core/error.h"

namespace kvarena::reports {
namespace {

void check_prompts(const CellData& method, const CellData& baseline) {
  const auto place = [](const CellData& cell) {
    return fmt::format("{}, {}", cell.row.cell.workload, cell.row.cell.method);
  };
  auto theirs = baseline.prompts->begin();  // both in the order of samples
  for (const auto& [sample, ours] : *method.prompts) {
    while (theirs != baseline.prompts->end() && theirs->first < sample) ++theirs;
    if (theirs == baseline.prompts->end()) break;
    if (theirs->first != sample || theirs->second == ours) continue;
    fail({.place = fmt::format("{}: sample {}", place(method), sample),
          .found = fmt::format("prompt {:.12} here and {:.12} in {}", ours, theirs->second, place(baseline)),
          .expected = "the same prompt in samples that are paired",
          .action = "evaluate both with the same data, tokenizer and truncation"});
  }
}

bool can_show(int64_t pairs) { return metrics::smallest_sign_flip_p(pairs) < kLevel; }

int64_t moved(const metrics::PairedDifference& test) { return test.wins + test.losses; }

bool leaves_zero(const metrics::Interval& interval) { return interval.low > 0 || interval.high < 0; }

/// Neither cell scores anything, so a method cannot lose.
bool nothing_to_lose(const metrics::PairedDifference& test, const MetricLook& look) {
  return look.better == Better::higher && test.baseline_mean == 0 && moved(test) == 0;
}

/// No score differs, and neither does any token.
bool same_tokens(const Evidence& evidence) {
  return moved(evidence.test) == 0 && evidence.tokens && evidence.tokens->equal();
}

Verdict judge(const Evidence& evidence, const MetricLook& look) {
  const metrics::PairedDifference& test = evidence.test;
  const double floor = evidence.floor ? evidence.floor->value : 0;
  const bool apart = leaves_zero(test.interval);
  if (apart && evidence.p_value < kLevel && std::abs(test.difference) > floor)
    return direction_of(test.difference, look.better);
  if (same_tokens(evidence)) return Verdict::no_difference;
  if (floor > 0 && std::abs(test.difference) <= floor) return Verdict::no_difference;
  const bool tells = can_show(test.samples) && !nothing_to_lose(test, look);
  return tells && !apart && evidence.p_value >= kLevel ? Verdict::no_difference : Verdict::too_few;
}

}  // namespace

int64_t fewest_pairs() {
  int64_t pairs = 1;
  while (!can_show(pairs)) ++pairs;
  return pairs;
}

metrics::ResamplingOptions resampling_for(size_t values) {
  constexpr int64_t kDraws = 1'000'000;
  const int64_t each = kDraws / std::max<int64_t>(1, static_cast<int64_t>(values));
  return {.resamples = std::clamp<int64_t>(each, 400, 10'000)};
}

std::vector<double> finite(std::vector<double> values) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  return values;
}

std::optional<SamplePairs> sample_pairs(const CellData& method, const CellData& baseline, const std::string& metric) {
  const auto ours = method.values->find(metric);
  const auto theirs = baseline.values->find(metric);
  if (ours == method.values->end() || theirs == baseline.values->end()) return std::nullopt;
  check_prompts(method, baseline);
  const std::vector<results::ValueRow>& rows = theirs->second.rows;
  std::unordered_map<std::string_view, const results::ValueRow*> by_sample;  // once samples are not in one order
  SamplePairs pairs;
  for (size_t i = 0; i < ours->second.rows.size(); ++i) {
    const results::ValueRow& row = ours->second.rows[i];
    const results::ValueRow* other = i < rows.size() && rows[i].sample_id == row.sample_id ? &rows[i] : nullptr;
    if (other == nullptr) {
      if (by_sample.empty()) {
        for (const results::ValueRow& each : rows) by_sample[each.sample_id] = &each;
      }
      const auto found = by_sample.find(row.sample_id);
      if (found == by_sample.end()) continue;
      other = found->second;
    }
    if (!std::isfinite(row.value) || !std::isfinite(other->value)) continue;
    pairs.method.push_back(row.value);
    pairs.baseline.push_back(other->value);
  }
  if (pairs.method.empty()) return std::nullopt;
  return pairs;
}

std::vector<double> sample_drops(const CellData& method, const CellData& baseline, const std::string& metric) {
  std::vector<double> lost;
  const auto pairs = sample_pairs(method, baseline, metric);
  for (size_t i = 0; pairs && i < pairs->method.size(); ++i) {
    if (pairs->baseline[i] != 0) lost.push_back(1 - pairs->method[i] / pairs->baseline[i]);
  }
  return lost;
}

std::optional<metrics::PairedDifference> pair_cells(const CellData& method, const CellData& baseline,
                                                    const std::string& metric) {
  const auto pairs = sample_pairs(method, baseline, metric);
  if (!pairs) return std::nullopt;
  return metrics::paired_difference(pairs->method, pairs->baseline, resampling_for(pairs->method.size()));
}

std::optional<NoiseFloor> noise_floor(const ExperimentData& data, const std::string& workload,
                                      const std::string& metric, const std::string& model) {
  const auto run_of = [&](results::CellKind kind) {
    const auto found = std::ranges::find_if(data.cells, [&](const CellData& each) {
      const results::CellRecord& cell = each.row.cell;
      return cell.kind == kind && cell.baseline && cell.workload == workload && (model.empty() || cell.model == model);
    });
    return found == data.cells.end() ? nullptr : &*found;
  };
  const CellData* first = run_of(results::CellKind::quality);
  const CellData* second = run_of(results::CellKind::noise_floor);
  if (first == nullptr || second == nullptr || !first->counts() || !second->counts()) return std::nullopt;
  const auto pairs = sample_pairs(*second, *first, metric);
  if (!pairs) return std::nullopt;
  double sum = 0;
  for (size_t i = 0; i < pairs->method.size(); ++i) sum += std::abs(pairs->method[i] - pairs->baseline[i]);
  return NoiseFloor{.value = sum / static_cast<double>(pairs->method.size()),
                    .samples = static_cast<int64_t>(pairs->method.size())};
}

std::optional<TokenEvidence> token_evidence(const std::vector<double>& kl, double floor) {
  if (kl.empty()) return std::nullopt;
  return TokenEvidence{.kl = metrics::bootstrap_mean(kl, resampling_for(kl.size())), .floor = floor};
}

std::vector<double> row_p_values(std::span<const metrics::PairedDifference> row) {
  std::vector<double> p_values, able;
  for (const metrics::PairedDifference& test : row) {
    p_values.push_back(test.p_value);
    if (can_show(test.samples)) able.push_back(test.p_value);
  }
  const std::vector<double> adjusted = metrics::hochberg(able);
  size_t next = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (can_show(row[i].samples)) p_values[i] = adjusted[next++];
  }
  return p_values;
}

double detectable_difference(std::span<const metrics::PairedDifference> tests) {
  std::vector<double> spreads, steps, scores;
  int64_t samples = 0;
  for (const metrics::PairedDifference& test : tests) {
    samples = std::max(samples, test.samples);
    scores.push_back(std::abs(test.baseline_mean));
    if (moved(test) == 0) continue;
    const auto n = static_cast<double>(test.samples);
    const double squares =
        (n - 1) * test.standard_deviation * test.standard_deviation + n * test.difference * test.difference;
    spreads.push_back(test.standard_deviation);
    steps.push_back(std::sqrt(squares / static_cast<double>(moved(test))));
  }
  if (!can_show(samples)) return 0;
  const double step = metrics::percentile(steps.empty() ? scores : steps, 50);
  const double fewest = static_cast<double>(fewest_pairs()) * step / static_cast<double>(samples);
  if (spreads.empty()) return fewest;
  return std::max(metrics::minimum_detectable_difference(metrics::percentile(spreads, 50), samples, kLevel), fewest);
}

Verdict direction_of(double difference, Better better) {
  if (better == Better::neither) return Verdict::differs;
  return (difference > 0) == (better == Better::higher) ? Verdict::better : Verdict::worse;
}

Difference verdict_of(const Evidence& evidence, const MetricLook& look) {
  const metrics::PairedDifference& test = evidence.test;
  Difference difference{.value = look.scale * test.difference,
                        .interval = {look.scale * test.interval.low, look.scale * test.interval.high},
                        .verdict = judge(evidence, look),
                        .detectable = {}};
  if (difference.verdict == Verdict::no_difference && !same_tokens(evidence) && evidence.detectable > 0)
    difference.detectable = look.scale * evidence.detectable;
  return difference;
}

std::string explanation(const Evidence& evidence, const MetricLook& look) {
  if (judge(evidence, look) != Verdict::too_few) return {};
  const metrics::PairedDifference& test = evidence.test;
  std::string text = "Too few samples to tell: the interval leaves zero, the test does not reach 5%.";
  if (!can_show(test.samples)) {
    text = fmt::format("Too few samples to tell: with {} no outcome reaches 5%, {} are the fewest that can reach it.",
                       test.samples, fewest_pairs());
  } else if (nothing_to_lose(test, look)) {
    text = "Too few samples to tell: the baseline scores nothing on any of them, so no loss can be seen.";
  }
  if (evidence.tokens && evidence.tokens->differ()) text += " The tokens do differ: KL from full KV is above zero.";
  return text;
}

std::string evidence_text(const Evidence& evidence, const MetricLook& look) {
  const metrics::PairedDifference& test = evidence.test;
  const bool higher = look.better != Better::lower;
  std::string text = fmt::format("{} samples, {} {}, {} {}, p = {:.3g}", test.samples, higher ? test.wins : test.losses,
                                 look.better == Better::neither ? "larger" : "better", higher ? test.losses : test.wins,
                                 look.better == Better::neither ? "smaller" : "worse", evidence.p_value);
  if (!evidence.tokens) return text;
  if (evidence.tokens->equal()) return text + "; every token's distribution is full KV's";
  const metrics::MeanEstimate& kl = evidence.tokens->kl;
  return text + fmt::format("; KL {:.2g} ({:.2g} to {:.2g}) nats a step", kl.mean, kl.interval.low, kl.interval.high);
}

}  // namespace kvarena::reports
