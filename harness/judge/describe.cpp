#include "harness/judge/describe.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace kvarena::judge {
namespace {

/// A series, and the mean of its numbers as a value of the same name.
void add_series(store::SampleResult& result, store::Series series) {
  double sum = 0;
  int64_t count = 0;
  for (const float value : series.values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  if (count == 0) return;
  result.values.push_back({.metric = series.name, .value = sum / static_cast<double>(count), .unit = series.unit});
  result.series.push_back(std::move(series));
}

}  // namespace

void describe_prompt(store::SampleResult& result, const Request& request) {
  result.prompt_sha256 = request.sample->prompt_sha256;
  result.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  result.truncated_tokens = request.sample->truncation.tokens_removed;
}

void add_bytes(store::SampleResult& result, const Session& session, int64_t full_bytes) {
  const auto resident = static_cast<double>(session.resident_bytes);
  const auto full = static_cast<double>(full_bytes);
  result.values.push_back({.metric = "resident_bytes", .value = resident, .unit = "bytes"});
  result.values.push_back({.metric = "full_kv_bytes", .value = full, .unit = "bytes"});
  result.values.push_back({.metric = "kept_bytes_fraction", .value = resident / full, .unit = "fraction"});
  result.values.push_back({.metric = "compression_factor", .value = full / resident, .unit = ""});
  result.peak_bytes["device"] = std::max(session.peak_bytes, session.resident_bytes);
}

void add_activity(store::SampleResult& result, const Activity& activity) {
  result.activity_json = nlohmann::json{{"entries_dropped", activity.entries_dropped},
                                        {"entries_packed", activity.entries_packed},
                                        {"entries_skipped", activity.entries_skipped},
                                        {"tokens_drafted", activity.tokens_drafted},
                                        {"tokens_accepted", activity.tokens_accepted}}
                             .dump();
}

void add_selections(store::SampleResult& result, const SelectionMeter& meter) {
  if (meter.steps().empty()) return;
  store::Series hits{.name = "attention_hit_rate", .values = {}, .unit = "fraction"};
  store::Series overlaps{.name = "selection_overlap", .values = {}, .unit = "fraction"};
  store::Series loaded{.name = "loaded_bytes", .values = {}, .unit = "bytes"};
  for (const SelectionStep& step : meter.steps()) {
    hits.values.push_back(static_cast<float>(step.hit_rate));
    overlaps.values.push_back(static_cast<float>(step.overlap));
    loaded.values.push_back(static_cast<float>(step.loaded_bytes));
  }
  const std::vector<double> layers = meter.layer_hit_rates();
  add_series(result, std::move(hits));
  result.series.push_back(
      {.name = "attention_hit_rate_by_layer", .values = {layers.begin(), layers.end()}, .unit = "fraction"});
  if (!meter.selected()) return;
  add_series(result, std::move(overlaps));
  add_series(result, std::move(loaded));
}

}  // namespace kvarena::judge
