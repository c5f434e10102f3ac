#include "harness/evaluate/describe.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/storage/hierarchy.h"

namespace kvarena::evaluate {
namespace {

/// A series, and the mean of its numbers as a value of the same name.
void add_series(results::SampleResult& result, results::Series series) {
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

/// Bytes of every tier that is ever used, after the prompt and after each pass.
void add_tier_series(results::SampleResult& result, const Session& session) {
  for (const auto& [name, tier] :
       {std::pair("device_bytes", &TierBytes::device), std::pair("host_bytes", &TierBytes::host),
        std::pair("disk_bytes", &TierBytes::disk)}) {
    results::Series series{.name = name, .unit = "bytes"};
    bool used = false;
    for (const TierBytes& bytes : session.tier_bytes) {
      series.values.push_back(static_cast<float>(bytes.*tier));
      used = used || bytes.*tier > 0;
    }
    if (used) result.series.push_back(std::move(series));
  }
}

}  // namespace

void describe_prompt(results::SampleResult& result, const Request& request) {
  result.prompt_sha256 = request.sample->prompt_sha256;
  result.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  result.truncated_tokens = request.sample->truncation.tokens_removed;
}

void add_bytes(results::SampleResult& result, const Session& session, int64_t full_bytes) {
  const auto resident = static_cast<double>(session.resident_bytes);
  const auto full = static_cast<double>(full_bytes);
  result.values.push_back({.metric = "resident_bytes", .value = resident, .unit = "bytes"});
  result.values.push_back({.metric = "full_kv_bytes", .value = full, .unit = "bytes"});
  result.values.push_back({.metric = "kept_bytes_fraction", .value = resident / full, .unit = "fraction"});
  result.values.push_back({.metric = "compression_factor", .value = full / resident, .unit = ""});
  if (session.bits_per_number > 0) {
    result.values.push_back({.metric = "bits_per_number", .value = session.bits_per_number, .unit = "bits"});
  }
  result.peak_bytes["device"] = std::max(session.peak_bytes, session.resident_bytes);
  if (session.peak_host_bytes > 0) result.peak_bytes["host"] = session.peak_host_bytes;
  if (session.peak_disk_bytes > 0) result.peak_bytes["disk"] = session.peak_disk_bytes;
  add_tier_series(result, session);
}

void add_divergence(results::SampleResult& result, std::span<const metrics::StepDivergence> steps) {
  const metrics::SequenceDivergence total = metrics::sequence_divergence(steps);
  result.values.push_back({.metric = "kl_nats", .value = total.kl_nats_mean, .unit = "nats"});
  result.values.push_back({.metric = "kl_nats_sum", .value = total.kl_nats_sum, .unit = "nats"});
  result.values.push_back({.metric = "top1_agreement", .value = total.top1_agreement, .unit = "fraction"});
  results::Series series{.name = "kl_nats", .unit = "nats"};
  for (const metrics::StepDivergence& step : steps) series.values.push_back(static_cast<float>(step.kl_nats));
  result.series.push_back(std::move(series));
}

results::Storage storage_of(const Session& session, const Request& request) {
  const bool over_link = !session.traffic.empty() || (session.reuse && request.chunk_tier != Tier::device);
  const bool emulated = over_link && request.facts != nullptr && request.facts->tiers->emulated();
  return emulated ? results::Storage::emulated : results::Storage::real;
}

void add_traffic(results::SampleResult& result, const Session& session, const Request& request) {
  if (session.traffic.empty()) return;
  constexpr double kMilliseconds = 1e3;
  const results::Storage storage = storage_of(session, request);
  const auto passes = static_cast<double>(session.traffic.size());
  Traffic total;
  results::Series bytes{.name = "link_bytes", .unit = "bytes", .storage = storage};
  results::Series link{.name = "link_ms", .unit = "ms", .clock = results::Clock::measured, .storage = storage};
  results::Series stall{.name = "stall_ms", .unit = "ms", .clock = results::Clock::measured, .storage = storage};
  for (const Traffic& pass : session.traffic) {
    bytes.values.push_back(static_cast<float>(pass.loaded_bytes));
    link.values.push_back(static_cast<float>(pass.link_seconds * kMilliseconds));
    stall.values.push_back(static_cast<float>(pass.stalled_seconds * kMilliseconds));
    total.loaded_bytes += pass.loaded_bytes;
    total.link_seconds += pass.link_seconds;
    total.stalled_seconds += pass.stalled_seconds;
  }
  const auto add = [&](const char* metric, double value, const char* unit, results::Clock clock) {
    result.values.push_back({.metric = metric, .value = value, .unit = unit, .clock = clock, .storage = storage});
  };
  add("link_bytes", static_cast<double>(total.loaded_bytes) / passes, "bytes", results::Clock::none);
  add("link_ms", total.link_seconds * kMilliseconds / passes, "ms", results::Clock::measured);
  add("stall_ms", total.stalled_seconds * kMilliseconds / passes, "ms", results::Clock::measured);
  const double hidden = 1 - total.stalled_seconds / std::max(total.link_seconds, 1e-12);
  add("prefetch_overlap", std::clamp(hidden, 0.0, 1.0), "fraction", results::Clock::measured);
  for (results::Series* series : {&bytes, &link, &stall}) result.series.push_back(std::move(*series));
}

void add_reuse(results::SampleResult& result, const Session& session) {
  if (!session.reuse) return;
  const ReuseRecord& reuse = *session.reuse;
  const auto recomputed = static_cast<double>(reuse.recomputed.size());
  result.values.push_back({.metric = "recompute_share", .value = reuse.recompute_share, .unit = "fraction"});
  result.values.push_back({.metric = "recomputed_tokens", .value = recomputed, .unit = "tokens"});
  result.values.push_back(
      {.metric = "reused_bytes", .value = static_cast<double>(reuse.loaded_bytes), .unit = "bytes"});
  if (session.deviation.empty()) return;
  const double sum = std::accumulate(session.deviation.begin(), session.deviation.end(), 0.0);
  result.values.push_back({.metric = "kv_deviation",
                           .value = sum / static_cast<double>(session.deviation.size()),
                           .unit = "cosine distance"});
  result.series.push_back({.name = "kv_deviation",
                           .values = {session.deviation.begin(), session.deviation.end()},
                           .unit = "cosine distance"});
}

void add_activity(results::SampleResult& result, const Activity& activity) {
  result.activity_json =
      nlohmann::json{{"entries_dropped", activity.entries_dropped}, {"entries_packed", activity.entries_packed},
                     {"entries_skipped", activity.entries_skipped}, {"tokens_drafted", activity.tokens_drafted},
                     {"tokens_accepted", activity.tokens_accepted}, {"tokens_reused", activity.tokens_reused}}
          .dump();
}

void add_selections(results::SampleResult& result, const SelectionMeter& meter) {
  if (meter.steps().empty()) return;
  results::Series hits{.name = "attention_hit_rate", .values = {}, .unit = "fraction"};
  results::Series overlaps{.name = "selection_overlap", .values = {}, .unit = "fraction"};
  results::Series loaded{.name = "loaded_bytes", .values = {}, .unit = "bytes"};
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

}  // namespace kvarena::evaluate
