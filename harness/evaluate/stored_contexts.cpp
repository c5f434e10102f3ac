#include "harness/evaluate/stored_contexts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/core/error.h"
#include "harness/evaluate/serving_point.h"
#include "harness/evaluate/stored_executor.h"
#include "harness/evaluate/stored_point.h"
#include "harness/evaluate/stored_values.h"
#include "harness/method/eviction.h"
#include "harness/storage/placement/exact.h"
#include "metrics/latency/serving.h"
#include "metrics/statistics.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;
using nlohmann::json;
using results::Clock;
using serving::ServingRun;
using stored::CacheForm;
using stored::ContextLibrary;

constexpr double kMilliseconds = 1e3;

/// Rate of a tier in memory. One that is not emulated counts as taking no time: policies leave its copy out, beside the
/// restoring, which profiles measure.
double rate_for_policies(double bytes_per_s) {
  return bytes_per_s == 0 ? std::numeric_limits<double>::infinity() : bytes_per_s;
}

/// Device, where contexts lie there, memory, disk and remote as the config describes them. `ready`: the device holds
/// caches as attention reads them; else the bytes of chunks.
stored::LibraryPlace place_of(const StoredContextsTask& task, const StoredPoint& point,
                              const std::filesystem::path& folder, bool ready) {
  const experiment::ContextSettings& s = task.contexts;
  const double latency = s.remote_bytes_per_s == 0 ? 0 : s.remote_latency_ms / kMilliseconds;
  const std::vector<storage::TierSettings> behind = {
      {.tier = Tier::device, .link = {.name = "device"}},
      {.tier = Tier::host, .link = {.name = "memory", .bytes_per_s = s.memory_bytes_per_s}},
      {.tier = Tier::remote, .link = {.name = "remote", .bytes_per_s = s.remote_bytes_per_s, .latency_s = latency}}};
  const auto all = static_cast<double>(point.set->originals->bytes());
  const auto room = [&](const std::optional<int64_t>& bytes, double share) {
    return bytes.value_or(static_cast<int64_t>(share * all));
  };
  std::vector<storage::StoreTier> tiers;
  if (s.on_device()) {
    tiers.push_back({.tier = Tier::device,
                     .books = {.name = "device",
                               .capacity = room(s.device_bytes, s.device_share),
                               .bandwidth = rate_for_policies(0),
                               .ready = ready}});
  }
  tiers.push_back({.tier = Tier::host,
                   .books = {.name = "memory",
                             .capacity = room(s.memory_bytes, s.memory_share),
                             .bandwidth = rate_for_policies(s.memory_bytes_per_s)}});
  tiers.push_back({.tier = Tier::disk,
                   .books = {.name = "disk",
                             .capacity = room(s.disk_bytes, s.disk_share),
                             .bandwidth = point.set->disk_bytes_per_s},
                   .disk_link = {.name = "disk", .bytes_per_s = s.disk_bytes_per_s}});
  tiers.push_back(
      {.tier = Tier::remote,
       .books = {.name = "remote", .bandwidth = rate_for_policies(s.remote_bytes_per_s), .latency_s = latency}});
  return {.tiers = std::move(tiers), .hierarchy = std::make_shared<const storage::Hierarchy>(behind), .folder = folder};
}

/// Times of requests that begin with stored contexts, which come over links with the rates that the config gives.
Origin origin_of(const experiment::ContextSettings& s) {
  const bool real = s.memory_bytes_per_s == 0 && s.disk_bytes_per_s == 0 && s.remote_bytes_per_s == 0;
  return {.clock = Clock::measured, .storage = real ? results::Storage::real : results::Storage::emulated};
}

/// Values of one tier; null: none.
struct TierMetrics {
  const char* name;
  Tier tier;
  const metrics::StoredMetric *hits, *peak, *keep;
};

constexpr TierMetrics kTiers[] = {
    {"device", Tier::device, &metrics::kDeviceHits, &metrics::kPeakDeviceBytes, &metrics::kKeepOnDevice},
    {"memory", Tier::host, &metrics::kMemoryHits, &metrics::kPeakMemoryBytes, &metrics::kKeepInMemory},
    {"disk", Tier::disk, &metrics::kDiskHits, &metrics::kPeakDiskBytes, &metrics::kKeepOnDisk},
    {"remote", Tier::remote, &metrics::kRemoteHits, nullptr, nullptr},
};

const TierMetrics& metrics_of(const storage::StorageTier& tier) {
  return *std::ranges::find(kTiers, tier.name, [](const TierMetrics& its) { return std::string(its.name); });
}

void add_begun(results::SampleResult& result, const storage::TieredContexts& books, const std::vector<Begun>& begun,
               const Origin& origin) {
  std::map<Tier, double> from;
  double anew = 0;
  std::vector<double> load, restore;
  for (const Begun& one : begun) {
    for (const auto& [tier, share] : one.tiers) from[tier] += share;
    if (one.tiers.empty()) ++anew;
    load.push_back(one.load_s);
    restore.push_back(one.restore_s);
  }
  const auto requests = static_cast<double>(begun.size());
  for (const storage::StorageTier& tier : books.tiers()) {
    const TierMetrics& its = metrics_of(tier);
    add(result, *its.hits, from[its.tier] / requests);
  }
  add(result, metrics::kRecomputedContexts, anew / requests);
  add(result, metrics::kCacheLoadMs, metrics::mean_of(load) * kMilliseconds, origin);
  add(result, metrics::kCacheRestoreMs, metrics::mean_of(restore) * kMilliseconds, {.clock = Clock::measured});
}

/// Adds the peaks of the tiers, and the final tier and form of every context, of chunks on each tier that holds some.
void add_placement(results::SampleResult& result, const StoredContextsTask& task, const StoredPoint& point,
                   const ContextLibrary& library) {
  const storage::TieredContexts& books = library.store().books();
  for (size_t tier = 0; tier < books.tiers().size(); ++tier) {
    const metrics::StoredMetric* const peak = metrics_of(books.tiers()[tier]).peak;
    if (peak != nullptr) add(result, *peak, static_cast<double>(books.peak(static_cast<int64_t>(tier))));
  }
  if (library.forms().size() > 1)
    add(result, metrics::kOriginalBytes, static_cast<double>(point.set->originals->bytes()));
  std::vector<std::vector<double>> keeps(books.tiers().size());
  for (size_t i = 0; i < task.asked.size(); ++i) {
    const std::string& id = task.asked[i].id;
    std::map<std::pair<int64_t, int64_t>, int64_t> bytes;  // by tier and form; none where no tier had room
    for (const storage::Context* part : library.stored(id))
      bytes[{part->at.tier, part->at.form}] += storage::bytes_of(*part, part->at, books.tiers());
    for (const auto& [at, held] : bytes) {
      const auto tier = static_cast<size_t>(at.first);
      const std::string& label = library.forms()[static_cast<size_t>(at.second)].label;
      const double keep = static_cast<double>(held) / static_cast<double>(point.set->full_bytes[i]);
      keeps[tier].push_back(keep);
      const json data = {{"context", id},
                         {"form", label.empty() ? "uncompressed" : label},
                         {"keep", keep},
                         {"tier", books.tiers()[tier].name}};
      result.events.push_back({.event = metrics::kContextStored, .data_json = data.dump()});
    }
  }
  for (size_t tier = 0; tier < keeps.size(); ++tier) {
    const metrics::StoredMetric* const keep = metrics_of(books.tiers()[tier]).keep;
    if (keep != nullptr && !keeps[tier].empty()) add(result, *keep, metrics::mean_of(keeps[tier]));
  }
}

/// Adds what a use of a context is worth less, by the policy's utility, than under the exact optimum of the same
/// profiles and frequencies, where contexts are few enough to find that.
void add_lost_utility(results::SampleResult& result, const storage::Policy& policy,
                      const storage::TieredContexts& books) {
  constexpr size_t kMostContexts = 12;
  const std::optional<double> alpha = policy.alpha();
  if (!alpha || books.contexts().size() > kMostContexts) return;
  std::vector<storage::Context> best = books.contexts();
  const std::vector<storage::Choice> choices = storage::best_placement(best, books.tiers(), *alpha);
  double uses = 0;
  for (size_t i = 0; i < best.size(); ++i) {
    best[i].at = choices[i];
    uses += static_cast<double>(best[i].accesses);
  }
  const double lost = storage::total_utility(best, books.tiers(), *alpha) -
                      storage::total_utility(books.contexts(), books.tiers(), *alpha);
  add(result, metrics::kLostUtility, std::max(0.0, lost) / uses);
}

/// Adds an event for each context that was profiled anew, when that ended, and the times to first token of the requests
/// that waited while some context was, beside those of the others.
void add_profilings(results::SampleResult& result, const StoredContextsTask& task, const StoredExecutor& executor,
                    const ServingRun& run, const Origin& origin) {
  const std::vector<Profiling>& all = executor.profilings();
  add(result, metrics::kReprofiledContexts, static_cast<double>(all.size()));
  for (const Profiling& one : all) {
    result.events.push_back(
        {.event = metrics::kContextProfiled,
         .at_ms = one.ended_s * kMilliseconds,
         .data_json = json{{"context", task.asked[one.context].id}, {"began_ms", one.began_s * kMilliseconds}}.dump()});
  }
  if (all.empty()) return;
  const double first_s = std::ranges::min_element(all, {}, &Profiling::began_s)->began_s;
  std::vector<double> before, beside, after;
  for (const serving::Timeline& request : run.requests) {
    if (request.outcome != serving::Outcome::answered) continue;
    const double first = request.token_s.front();
    const bool waited = std::ranges::any_of(
        all, [&](const Profiling& one) { return one.began_s < first && request.arrival_s < one.ended_s; });
    (waited ? beside : first <= first_s ? before : after).push_back(first - request.arrival_s);
  }
  const auto p99 = [&](const metrics::StoredMetric& metric, const std::vector<double>& seconds) {
    if (!seconds.empty()) add(result, metric, metrics::summarize(seconds).p99 * kMilliseconds, origin);
  };
  p99(metrics::kFirstTokenBeforeProfilings, before);
  p99(metrics::kFirstTokenWhileProfiling, beside);
  p99(metrics::kFirstTokenAfterProfilings, after);
}

/// Describes the point's requests as one sample of the cell; returns the score of each answer.
std::vector<double> describe_answers(results::SampleResult& result, const StoredContextsTask& task,
                                     const StoredPoint& point, const ServingEngine& engine, const ServingRun& run,
                                     const Origin& origin) {
  std::string prompts;
  std::vector<double> scores, answered;
  const std::vector<int64_t>& tokens = point.prompt_tokens;
  for (size_t r = 0; r < point.asks.size(); ++r) {
    const Request& request = request_of(task, point.asks[r]);
    const auto& answer = engine.answer(static_cast<int64_t>(r));
    prompts += request.sample->prompt_sha256;
    result.prompt_tokens += tokens[r];
    scores.push_back(answer ? task.similarity(request, answer->tokens, point.full_answers[r]) : 0);
    answered.push_back(answer ? run.requests[r].token_s.back() : NAN);
    if (answer) result.output_tokens += static_cast<int64_t>(answer->tokens.size());
  }
  describe_requests(result, task.serving, run, prompts, scores);
  add_series(result, metrics::kAnswerSimilarity, {scores.begin(), scores.end()});
  add_series(result, metrics::kAnsweredMs, in_milliseconds(answered), origin);
  add_series(result, metrics::kRequestTokens, {tokens.begin(), tokens.end()});
  return scores;
}

/// Describes a run of whole prompts, or of requests that begin with stored contexts.
void describe_run(results::SampleResult& result, const StoredContextsTask& task, const StoredPoint& point,
                  const ServingEngine& engine, const ServingRun& run, double rate, const Origin& origin) {
  const std::vector<double> scores = describe_answers(result, task, point, engine, run, origin);
  add_run(result, origin, task.serving,
          {.run = run,
           .rate = rate,
           .scores = scores,
           .full_scores = point.full_scores,
           .prompt_tokens = point.prompt_tokens});
}

SampleOutcome evaluate_full(Transformer& model, const StoredContextsTask& task, const StoredPoint& point,
                            serving::Load load, double rate) {
  SampleOutcome outcome;
  const Method full;
  ServingEngine engine(model, served_requests(task, point, full), task.facts);
  const ServingRun run = serving::serve(std::move(load), engine, batch_settings(task.serving));
  outcome.failure = trouble_of(run);
  if (!outcome.failure.empty()) return outcome;
  describe_run(outcome.result, task, point, engine, run, rate, {.clock = Clock::measured});
  outcome.result.active = true;
  return outcome;
}

SampleOutcome evaluate_policy(Transformer& model, const StoredContextsTask& task, const StoredPoint& point,
                              const Method& method, const std::filesystem::path& folder, serving::Load load,
                              double rate) {
  SampleOutcome outcome;
  const storage::Policy& policy = *method.placement();
  const std::vector<CacheForm> forms = forms_of(method, *point.set);
  ContextLibrary library(model, task.facts, forms, place_of(task, point, folder, forms.front().ready), policy,
                         chunking_of(method));
  const Origin origin = origin_of(task.contexts);
  double now = 0;
  for (const size_t i : point.before.order) {
    std::optional<std::vector<storage::Form>> known;
    if (chooses(method)) known = point.set->profiles[i];
    library.add(
        task.asked[i].id, [&point, i] { return point.set->originals->read(i); }, now++, std::move(known),
        point.before.uses[i]);
  }
  library.rearrange();
  add_lost_utility(outcome.result, policy, library.store().books());
  StoredExecutor executor(model, task, point, library, policy);
  const ServingRun run = serving::serve(std::move(load), executor, batch_settings(task.serving));
  executor.finish_moves();
  outcome.failure = trouble_of(run);
  if (!outcome.failure.empty()) return outcome;
  describe_run(outcome.result, task, point, executor.engine(), run, rate, origin);
  add_begun(outcome.result, library.store().books(), executor.begun(), origin);
  add_placement(outcome.result, task, point, library);
  add_profilings(outcome.result, task, executor, run, origin);
  outcome.result.active = true;
  return outcome;
}

}  // namespace

std::vector<SampleOutcome> evaluate_stored_contexts(Transformer& model, const StoredContextsTask& task,
                                                    const StoredSet& set, std::span<const EvaluatedMethod> methods) {
  const StoredPoint point = read_point(model, task, set);
  const ServingPoint load{
      .settings = task.serving, .requests = point.asks.size(), .point = task.point, .seed = task.seed};
  return outcomes_of(methods, [&](const EvaluatedMethod& evaluated) -> SampleOutcome {
    double rate = 0;
    serving::Load arrivals = load_of(load, point.capacity, rate);
    if (evaluated.method->placement() != nullptr) {
      return evaluate_policy(model, task, point, *evaluated.method, set.folder.path() / "disk", std::move(arrivals),
                             rate);
    }
    if (evaluated.reference) return evaluate_full(model, task, point, std::move(arrivals), rate);
    return {.failure =
                "it places no contexts: over stored contexts methods are policies, which take a compression "
                "method as \"compress\", or full KV"};
  });
}

}  // namespace kvarena::evaluate
