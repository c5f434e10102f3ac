#include "harness/evaluate/describe.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/evaluate/stored_values.h"
#include "harness/storage/hierarchy.h"

namespace kvarena::evaluate {
namespace {

/// Adds a series and, as the value, the mean of its numbers; NaN does not count, and without a number nothing is added.
void add_mean(results::SampleResult& result, const metrics::StoredMetric& metric, std::vector<float> values) {
  double sum = 0;
  int64_t count = 0;
  for (const float value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  if (count == 0) return;
  add(result, metric, sum / static_cast<double>(count));
  add_series(result, metric, std::move(values));
}

/// Adds the bytes of every tier that is ever used, after the prompt and after each pass.
void add_tier_series(results::SampleResult& result, const SessionResult& session) {
  for (const auto& [series, tier] :
       {std::pair(metrics::kDeviceBytes, &TierBytes::device), std::pair(metrics::kHostBytes, &TierBytes::host),
        std::pair(metrics::kDiskBytes, &TierBytes::disk)}) {
    std::vector<float> values;
    bool used = false;
    for (const TierBytes& bytes : session.tier_bytes) {
      values.push_back(static_cast<float>(bytes.*tier));
      used = used || bytes.*tier > 0;
    }
    if (used) add_series(result, series, std::move(values));
  }
}

}  // namespace

void describe_prompt(results::SampleResult& result, const Request& request) {
  result.prompt_sha256 = request.sample->prompt_sha256;
  result.context = request.sample->context;
  result.prompt_tokens = request.asked_tokens();
  result.truncated_tokens = request.sample->truncation.tokens_removed;
}

void describe_answer(results::SampleResult& result, const Request& request, const SessionResult& session) {
  describe_prompt(result, request);
  result.output_tokens = static_cast<int64_t>(session.tokens.size());
  result.prediction = answer_text(request, session.tokens);
  if (const int64_t thought = thinking_tokens(request.thinking, session.tokens); thought > 0) {
    const auto tokens = std::span<const int32_t>(session.tokens).first(static_cast<size_t>(thought));
    add(result, metrics::kThinkingTokens, static_cast<double>(thought));
    result.events.push_back(
        {.event = metrics::kThought, .data_json = nlohmann::json{{"text", request.tokenizer->decode(tokens)}}.dump()});
  }
  result.finish_reason = to_string(session.finish);
}

void add_bytes(results::SampleResult& result, const SessionResult& session, int64_t full_bytes) {
  const auto resident = static_cast<double>(session.resident_bytes);
  const auto full = static_cast<double>(full_bytes);
  const Origin origin{.storage = session.simulated_bytes ? results::Storage::simulated : results::Storage::real};
  add(result, metrics::kResidentBytes, resident, origin);
  if (session.sliding_bytes > 0 && session.sliding_bytes < session.resident_bytes)  // a model of both kinds of layers
    add(result, metrics::kSlidingBytes, static_cast<double>(session.sliding_bytes), origin);
  if (session.state_bytes > 0) add(result, metrics::kStateBytes, static_cast<double>(session.state_bytes));
  add(result, metrics::kFullKvBytes, full);
  add(result, metrics::kKeptBytesFraction, resident / full, origin);
  add(result, metrics::kCompressionFactor, full / resident, origin);
  if (session.bits_per_number > 0) {
    add(result, metrics::kBitsPerNumber, session.bits_per_number, origin);
  }
  result.peak_bytes["device"] = std::max(session.peak_bytes, session.resident_bytes);
  if (session.peak_host_bytes > 0) result.peak_bytes["host"] = session.peak_host_bytes;
  if (session.peak_disk_bytes > 0) result.peak_bytes["disk"] = session.peak_disk_bytes;
  add_tier_series(result, session);
}

void add_divergence(results::SampleResult& result, std::span<const metrics::StepDivergence> steps) {
  const metrics::SequenceDivergence total = metrics::sequence_divergence(steps);
  add(result, metrics::kKlNats, total.kl_nats_mean);
  add(result, metrics::kKlNatsSum, total.kl_nats_sum);
  add(result, metrics::kTop1Agreement, total.top1_agreement);
  std::vector<float> nats;
  for (const metrics::StepDivergence& step : steps) nats.push_back(static_cast<float>(step.kl_nats));
  add_series(result, metrics::kKlNats, std::move(nats));
}

results::Storage storage_of(const Request& request, bool over_link) {
  const bool emulated = over_link && request.facts != nullptr && request.facts->tiers->emulated();
  return emulated ? results::Storage::emulated : results::Storage::real;
}

results::Storage storage_of(const SessionResult& session, const Request& request) {
  return storage_of(request, !session.traffic.empty() || (session.reuse && request.chunk_tier != Tier::device));
}

void add_traffic(results::SampleResult& result, const SessionResult& session, const Request& request) {
  if (session.traffic.empty()) return;
  constexpr double kMilliseconds = 1e3;
  const results::Storage storage = storage_of(session, request);
  const auto passes = static_cast<double>(session.traffic.size());
  Traffic total;
  std::vector<float> bytes, link, stall;
  for (const Traffic& pass : session.traffic) {
    bytes.push_back(static_cast<float>(pass.loaded_bytes));
    link.push_back(static_cast<float>(pass.link_seconds * kMilliseconds));
    stall.push_back(static_cast<float>(pass.stalled_seconds * kMilliseconds));
    total += pass;
  }
  const Origin counted{.storage = storage};
  const Origin measured{.clock = results::Clock::measured, .storage = storage};
  add(result, metrics::kLinkBytes, static_cast<double>(total.loaded_bytes) / passes, counted);
  add(result, metrics::kLinkMs, total.link_seconds * kMilliseconds / passes, measured);
  add(result, metrics::kStallMs, total.stalled_seconds * kMilliseconds / passes, measured);
  const double hidden = 1 - total.stalled_seconds / std::max(total.link_seconds, 1e-12);
  add(result, metrics::kPrefetchOverlap, std::clamp(hidden, 0.0, 1.0), measured);
  add_series(result, metrics::kLinkBytes, std::move(bytes), counted);
  add_series(result, metrics::kLinkMs, std::move(link), measured);
  add_series(result, metrics::kStallMs, std::move(stall), measured);
}

void add_reuse(results::SampleResult& result, const SessionResult& session) {
  if (!session.reuse) return;
  const ReuseRecord& reuse = *session.reuse;
  const auto recomputed = static_cast<double>(reuse.recomputed.size());
  add(result, metrics::kRecomputeShare, reuse.recompute_share);
  add(result, metrics::kRecomputedTokens, recomputed);
  add(result, metrics::kReusedBytes, static_cast<double>(reuse.loaded_bytes));
  if (session.deviation.empty()) return;
  const double sum = std::accumulate(session.deviation.begin(), session.deviation.end(), 0.0);
  add(result, metrics::kKvDeviation, sum / static_cast<double>(session.deviation.size()));
  add_series(result, metrics::kKvDeviation, {session.deviation.begin(), session.deviation.end()});
}

void add_activity(results::SampleResult& result, const Activity& activity) {
  result.activity_json =
      nlohmann::json{{"entries_dropped", activity.entries_dropped}, {"entries_packed", activity.entries_packed},
                     {"entries_skipped", activity.entries_skipped}, {"tokens_drafted", activity.tokens_drafted},
                     {"tokens_accepted", activity.tokens_accepted}, {"tokens_reused", activity.tokens_reused}}
          .dump();
}

void add_selections(results::SampleResult& result, const SelectionMeter& meter, int64_t prompt_tokens) {
  if (meter.steps().empty()) return;
  std::vector<float> hits, attended, overlaps, loaded;
  for (const SelectionStep& step : meter.steps()) {
    hits.push_back(static_cast<float>(step.hit_rate));
    const auto entries = static_cast<double>(prompt_tokens + std::ssize(attended) + 1);
    attended.push_back(static_cast<float>(step.attended / entries));
    overlaps.push_back(static_cast<float>(step.overlap));
    loaded.push_back(static_cast<float>(step.loaded_bytes));
  }
  const std::vector<double> layers = meter.layer_hit_rates();
  add_mean(result, metrics::kAttentionHitRate, std::move(hits));
  add_mean(result, metrics::kAttendedShare, std::move(attended));
  add_series(result, metrics::kAttentionHitRateByLayer, {layers.begin(), layers.end()});
  if (!meter.selected()) return;
  add_mean(result, metrics::kSelectionOverlap, std::move(overlaps));
  add_mean(result, metrics::kLoadedBytes, std::move(loaded));
}

}  // namespace kvarena::evaluate
