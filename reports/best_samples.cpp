#include "reports/best_samples.h"

#include <algorithm>
#include <cmath>

#include "metrics/statistics.h"
#include "metrics/stored_metrics.h"

namespace kvarena::reports {
namespace {

/// A sample that all methods of a group answered.
struct Sample {
  double prompt_tokens = 0;
  std::map<std::string, double> score, share;  // by method; share: resident bytes of full KV's
};

/// Values by sample.
std::map<std::string, double> by_sample(const results::ValueColumn& column) {
  std::map<std::string, double> values;
  for (const results::ValueRow& row : column.rows) values[row.sample_id] = row.value;
  return values;
}

std::vector<Sample> samples_of_all(const ExperimentData& data, const std::vector<std::string>& methods,
                                   const std::string& workload, const std::string& metric) {
  std::map<std::string, Sample> samples;
  for (const std::string& method : methods) {
    const CellData* cell = data.find(method, workload, results::CellKind::quality);
    if (cell == nullptr || !cell->counts()) return {};
    const auto scores = cell->values->find(metric);
    const auto bytes = cell->values->find(metrics::kKeptBytesFraction.name);
    if (scores == cell->values->end() || bytes == cell->values->end()) return {};
    for (const auto& [sample, tokens] : by_sample(*cell->prompt_lengths)) samples[sample].prompt_tokens = tokens;
    for (const auto& [sample, value] : by_sample(scores->second)) samples[sample].score[method] = value;
    for (const auto& [sample, value] : by_sample(bytes->second)) samples[sample].share[method] = value;
  }
  std::vector<Sample> whole;
  for (auto& [name, sample] : samples) {
    if (sample.score.size() == methods.size() && sample.share.size() == methods.size())
      whole.push_back(std::move(sample));
  }
  return whole;
}

void count_best(const Sample& sample, BestFor& best) {
  std::vector<std::string> winners;
  double highest = -1;
  for (const auto& [method, value] : sample.score) {
    if (value > highest) winners.clear();
    if (value >= highest) winners.push_back(method);
    highest = std::max(highest, value);
  }
  for (const std::string& winner : winners) best.counts[winner] += 1.0 / static_cast<double>(winners.size());
  if (winners.size() == 1) best.lengths[winners.front()].push_back(sample.prompt_tokens);
  ++best.samples;
}

}  // namespace

BestFor best_for(const ExperimentData& data, const std::vector<std::string>& methods, const std::string& metric) {
  BestFor best;
  for (const std::string& workload : data.workloads()) {
    for (const Sample& sample : samples_of_all(data, methods, workload, metric)) count_best(sample, best);
  }
  return best;
}

std::vector<double> best_shares(const ExperimentData& data, const std::string& workload, const std::string& metric) {
  const std::vector<std::string> methods = data.methods();
  std::vector<double> best;
  for (const Sample& sample : samples_of_all(data, methods, workload, metric)) {
    const double whole = sample.score.at(data.baseline());
    if (whole == 0) continue;
    const auto worth = [&](const std::string& method) {
      return sample.score.at(method) / whole - sample.share.at(method);
    };
    best.push_back(sample.share.at(*std::ranges::max_element(methods, {}, worth)));
  }
  return best;
}

double variation_of(const std::vector<double>& values) {
  const double mean = metrics::mean_of(values);
  return mean == 0 || values.size() < 2 ? NAN : metrics::standard_deviation_of(values) / mean;
}

}  // namespace kvarena::reports
