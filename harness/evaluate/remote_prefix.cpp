#include "harness/evaluate/remote_prefix.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "datasets/arrivals.h"
#include "harness/core/error.h"
#include "harness/engine/serving/prefix_run.h"
#include "harness/engine/session/request_bytes.h"
#include "harness/engine/stored/stored_cache.h"
#include "harness/evaluate/describe.h"
#include "harness/evaluate/stored_values.h"
#include "harness/method/verifier.h"
#include "harness/storage/remote/remote_storage.h"
#include "metrics/statistics.h"

namespace kvarena::evaluate {
namespace {

using cost_model::Path;

constexpr double kMilliseconds = 1e3;
constexpr double kMebi = 1024.0 * 1024.0;
/// Tokens after which passes of many requests have been timed often enough.
constexpr int64_t kPilotTokens = 8;

/// The way in which a method is served.
struct Served {
  PrefixUse use = PrefixUse::path;
  const Verifier* verifier = nullptr;
  const Method* stored = nullptr;  // method of the stored caches; null: full caches alone
  Nested<Method> drafter;          // owns `stored` when that is a verifier's drafter
  std::vector<Path> paths;
};

std::vector<Path> allowed(std::span<const Path> paths, const experiment::RemotePrefixSettings& links) {
  std::vector<Path> list(paths.begin(), paths.end());
  if (!links.local_decodes) std::erase(list, Path::local);
  return list;
}

Served served_by_verifier(const Verifier& verifier, const CompressedCopy& copy,
                          const experiment::RemotePrefixSettings& links) {
  if (copy.auxiliary || verifier.verified_cache()) {
    fail({.place = "remote_prefix",
          .found = "a verifier with an auxiliary drafter, or on another cache than full KV",
          .expected = "one whose drafts are a stored cache's alone"});
  }
  const std::string& path = copy.prefix_path;
  return {.verifier = &verifier,
          .stored = &*copy.compressor,
          .drafter = copy.compressor,
          .paths = path.empty() ? allowed(cost_model::all_paths, links)
                                : std::vector<Path>{cost_model::path_named(path, "path")}};
}

Served serving_of(const EvaluatedMethod& evaluated, const experiment::RemotePrefixSettings& links) {
  const Method& method = *evaluated.method;
  const bool reads = method.reuser() != nullptr && method.reuser()->source() == ReuseSource::nothing;
  if (reads) return {.use = PrefixUse::recompute};
  if (method.verifier() != nullptr) {
    const Drafter drafter = method.verifier()->drafter();
    const auto* copy = std::get_if<CompressedCopy>(&drafter);
    if (copy != nullptr) return served_by_verifier(*method.verifier(), *copy, links);
  }
  if (evaluated.reference) return {.paths = allowed(cost_model::plain_paths, links)};
  const std::string problem = storing_problem(method);
  if (problem.empty()) return {.use = PrefixUse::compressed, .stored = &method};
  throw UserError("remote_prefix: " + problem);
}

/// A pool's way to the store.
struct Way {
  const char* name = "";
  double bytes_per_s = 0;  // limited, or measured
  int64_t devices = 1;
  std::shared_ptr<storage::StoreLine> line;  // null: an emulated link, from this process's memory

  /// Opens the line of a store; it is measured on `block`, where it has no limit.
  void open(const std::string& store, const storage::Block& block) {
    line = std::make_shared<storage::StoreLine>(store, bytes_per_s);
    if (bytes_per_s == 0) bytes_per_s = storage::measured_rate(*line, block);
  }
  [[nodiscard]] PrefixPool pool(int64_t room) const {
    PrefixPool pool{.link = {.name = name}, .bytes_per_s = bytes_per_s, .devices = devices, .requests = room};
    if (line == nullptr) {
      pool.link.bytes_per_s = bytes_per_s;
    } else {
      pool.read = [line = line](const storage::Block& block, std::span<std::byte> to) { line->read(block, 0, to); };
    }
    return pool;
  }
};

/// Whether bytes come over a link that is slower than what is there.
results::Storage storage_of(const experiment::RemotePrefixSettings& links) {
  const bool limited = links.local_bytes_per_s > 0 || links.remote_bytes_per_s > 0;
  return limited ? results::Storage::emulated : results::Storage::real;
}

/// Measurements before the requests come, over links that take no time, on the first prompt but for `tokens` and
/// `acceptance`.
struct Pilot {
  std::vector<std::vector<int32_t>> tokens;  // full KV's, by prompt
  double one_s = 0;                          // a pass of one request
  double many_s = 0;                         // of as many as a device has room for
  double acceptance = 1;                     // of drafts
};

class Point {
 public:
  Point(Transformer& model, std::span<const Request> requests, const RemotePrefixTask& task, const Served& served)
      : model_(&model),
        task_(&task),
        served_(&served),
        local_{.name = "fast link",
               .bytes_per_s = task.links.local_bytes_per_s,
               .devices = task.links.local_devices,
               .line = nullptr},
        remote_{.name = "slow link",
                .bytes_per_s = task.links.remote_bytes_per_s,
                .devices = task.links.remote_devices,
                .line = nullptr},
        options_{.stop = requests.front().stop,
                 .sampling = requests.front().sampling,
                 .tokenizer = requests.front().tokenizer} {
    store(requests);
    room_ = room();
    std::vector<double> seconds(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<PrefixAnswer> alone = run_pilot({{.prompt = i, .path = Path::local}}, options_, seconds[i]);
      pilot_.tokens.push_back(alone.front().session->tokens);
    }
    pilot_.one_s = seconds.front();
    if (served.paths.empty()) return;
    SessionOptions few = options_;
    few.stop.max_new_tokens = std::min(few.stop.max_new_tokens, kPilotTokens);
    (void)run_pilot(std::vector<PrefixRequest>(static_cast<size_t>(room_), {.path = Path::local}), few, pilot_.many_s);
    if (served.verifier == nullptr) return;
    double accepted = 0, drafted = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<PrefixAnswer> alone =
          run_pilot({{.prompt = i, .path = Path::verify_only_cached}}, options_, seconds[i]);
      accepted += static_cast<double>(alone.front().session->activity.tokens_accepted);
      drafted += static_cast<double>(alone.front().session->activity.tokens_drafted);
    }
    pilot_.acceptance = std::max(accepted, 0.5) / std::max(drafted, 1.0);
  }

  [[nodiscard]] const Pilot& pilot() const { return pilot_; }
  [[nodiscard]] std::span<const StoredPrompt> stored() const { return stored_; }

  /// Rates of the paths by Appendix B.2, on this machine.
  [[nodiscard]] cost_model::RemotePrefixRates rates() const {
    const double each = pass_seconds_each();
    const double cache = mean_bytes(&StoredPrompt::full);
    const double bandwidth = cache / each;
    const double weights = std::max(pilot_.one_s - each, 0.0) * bandwidth;
    cost_model::RemotePrefixSetting setting{.weight_bytes = weights,
                                            .cache_bytes = cache,
                                            .memory_bytes = weights + (static_cast<double>(room_) + 0.5) * cache,
                                            .memory_bandwidth = bandwidth,
                                            .local_link_bandwidth = local_.bytes_per_s,
                                            .remote_link_bandwidth = remote_.bytes_per_s,
                                            .local_gpus = local_.devices,
                                            .remote_gpus = remote_.devices,
                                            .acceptance = std::min(pilot_.acceptance, 1.0),
                                            .output_tokens = static_cast<int64_t>(pilot_.tokens.front().size()),
                                            .one_device = true};
    if (served_->stored != nullptr) {
      setting.kept = mean_bytes(&StoredPrompt::compressed) / cache;
      setting.rest_bytes = mean_bytes(&StoredPrompt::rest);
    }
    if (served_->verifier != nullptr) setting.draft_length = served_->verifier->draft_length();
    return cost_model::best_rates_at_occupancy(setting, served_->paths, cost_model::SlotTime::wallclock);
  }

  [[nodiscard]] PrefixRun run(std::span<const PrefixRequest> requests) const {
    return checked(run_prefixes(*model_, stored_, served_->verifier, options_,
                                {.local = local_.pool(room_), .remote = remote_.pool(room_)}, requests));
  }

 private:
  void store(std::span<const Request> requests) {
    const std::string& address = task_->links.store;
    std::unique_ptr<storage::RemoteStorage> elsewhere;
    if (!address.empty()) {
      elsewhere = std::make_unique<storage::RemoteStorage>(std::make_shared<storage::StoreLine>(address, 0));
    }
    for (const Request& request : requests) {
      stored_.push_back(store_prompt(*model_, request.prompt, served_->stored, request.facts, elsewhere.get()));
    }
    if (address.empty()) return;
    for (Way* way : {&local_, &remote_}) way->open(address, *stored_.front().full);
  }

  /// Bytes of one of the copies that the store holds of each prompt, on average.
  [[nodiscard]] double mean_bytes(std::shared_ptr<const storage::Block> StoredPrompt::*copy) const {
    double bytes = 0;
    for (const StoredPrompt& prompt : stored_) bytes += static_cast<double>((prompt.*copy)->bytes());
    return bytes / static_cast<double>(stored_.size());
  }

  /// Requests that a device has room for, were all of the longest prompt.
  [[nodiscard]] int64_t room() const {
    if (!task_->timing.device_mib) return task_->timing.batch;
    int64_t longest = 0;
    for (const StoredPrompt& prompt : stored_) longest = std::max(longest, std::ssize(prompt.tokens));
    longest += options_.stop.max_new_tokens;
    const double bytes = *task_->timing.device_mib * kMebi;
    const auto each = full_cache_bytes(*model_, longest);
    const auto room = static_cast<int64_t>(bytes / static_cast<double>(each));
    if (room >= 1) return std::min(room, task_->timing.batch);
    fail({.place = "timing.device_mib",
          .found = fmt::format("{} bytes", bytes),
          .expected = fmt::format("room for one full cache of {} bytes", each)});
  }

  std::vector<PrefixAnswer> run_pilot(const std::vector<PrefixRequest>& requests, const SessionOptions& options,
                                      double& pass_seconds) const {
    const PrefixPool pool{.link = {.name = "free"}, .read = {}, .requests = room_, .fault = {}};
    const PrefixRunSettings free{.local = pool, .remote = pool};
    PrefixRun run = checked(run_prefixes(*model_, stored_, served_->verifier, options, free, requests));
    pass_seconds = metrics::percentile(run.pass_seconds, 50);
    return std::move(run.answers);
  }

  static PrefixRun checked(PrefixRun run) {
    for (const PrefixAnswer& answer : run.answers) {
      if (!answer.failure.empty()) throw UserError(answer.failure);
    }
    return run;
  }

  /// Seconds that one more request adds to a pass.
  [[nodiscard]] double pass_seconds_each() const {
    if (room_ == 1) return pilot_.one_s;
    const auto others = static_cast<double>(room_ - 1);
    const double most = std::min(pilot_.one_s, pilot_.many_s / static_cast<double>(room_));
    return std::clamp((pilot_.many_s - pilot_.one_s) / others, 0.01 * most, most);
  }

  Transformer* model_;
  const RemotePrefixTask* task_;
  const Served* served_;
  Way local_, remote_;
  std::vector<StoredPrompt> stored_;
  SessionOptions options_;
  int64_t room_ = 0;
  Pilot pilot_;
};

/// The requests in order of arrival.
std::vector<PrefixRequest> requests_of(size_t prompts, const Served& served, const RemotePrefixTask& task,
                                       const cost_model::RemotePrefixRates& rates) {
  const auto count = static_cast<size_t>(task.timing.batch);
  std::vector<PrefixRequest> requests(count, {.use = served.use});
  for (size_t i = 0; i < count; ++i) requests[i].prompt = i % prompts;
  if (served.use == PrefixUse::path) {
    const std::vector<Path> paths = share_out(rates, task.timing.batch);
    for (size_t i = 0; i < count; ++i) requests[i].path = paths[i];
  }
  if (task.links.arrivals_per_s > 0) {
    const std::vector<double> times = datasets::poisson_arrivals(task.links.arrivals_per_s, count, task.seed);
    for (size_t i = 0; i < count; ++i) requests[i].arrival_s = times[i];
  }
  return requests;
}

/// Values of each repeat, by name of their metric.
class Repeats {
 public:
  void note(const metrics::StoredMetric& metric, double value) {
    repeated_.try_emplace(metric.name, Repeated{.metric = metric}).first->second.values.push_back(value);
  }

  void note(const PrefixRun& run, std::span<const PrefixRequest> asked, const Pilot& pilot,
            const experiment::RemotePrefixSettings& links) {
    const auto requests = static_cast<double>(run.answers.size());
    double tokens = 0, first = 0, draft = 0, end = 0, gap = 0, same = 0, drafted = 0, accepted = 0;
    for (size_t i = 0; i < run.answers.size(); ++i) {
      const PrefixAnswer& answer = run.answers[i];
      const auto count = static_cast<double>(answer.session->tokens.size());
      tokens += count;
      first += answer.first_token_s;
      draft += answer.first_draft_s;
      end += answer.end_s;
      gap += (answer.end_s - answer.first_token_s) / std::max(count - 1, 1.0);
      same += answer.session->tokens == pilot.tokens[asked[i].prompt] ? 1 : 0;
      drafted += static_cast<double>(answer.session->activity.tokens_drafted);
      accepted += static_cast<double>(answer.session->activity.tokens_accepted);
    }
    note(metrics::kTimeToFirstTokenMs, kMilliseconds * first / requests);
    if (draft > 0) note(metrics::kFirstDraftMs, kMilliseconds * draft / requests);
    note(metrics::kEndToEndMs, kMilliseconds * end / requests);
    note(metrics::kInterTokenLatencyMs, kMilliseconds * gap / requests);
    note(metrics::kThroughputTokensPerS, tokens / run.seconds);
    note(metrics::kFastLinkBytes, static_cast<double>(run.local.bytes) / requests);
    note(metrics::kSlowLinkBytes, static_cast<double>(run.remote.bytes) / requests);
    if (drafted > 0) note(metrics::kLateVerifies, static_cast<double>(run.late_verifies));
    note(metrics::kSlowLinkUtilisation,
         run.remote.busy_seconds / run.seconds / static_cast<double>(links.remote_devices));
    if (run.moving_s > 0) note(metrics::kTransferHidden, 1 - run.waiting_s / run.moving_s);
    if (drafted > 0) note(metrics::kAcceptanceRate, accepted / drafted);
    note(metrics::kExactMatchFull, same / requests);
  }

  void give(results::SampleResult& result, results::Storage storage) const {
    const Origin origin{.clock = results::Clock::measured, .storage = storage};
    for (const auto& [name, repeated] : repeated_) add_repeats(result, repeated.metric, repeated.values, origin);
  }

 private:
  struct Repeated {
    metrics::StoredMetric metric;
    std::vector<double> values = {};
  };

  std::map<std::string, Repeated> repeated_;
};

/// Counts of requests by path, as JSON.
std::string ways(std::span<const PrefixRequest> requests) {
  nlohmann::json counts = nlohmann::json::object();
  for (const PrefixRequest& request : requests) {
    const std::string way = request.use == PrefixUse::path
                                ? std::string(cost_model::path_names[static_cast<size_t>(request.path)])
                            : request.use == PrefixUse::compressed ? "compressed"
                                                                   : "recompute";
    counts[way] = counts.value(way, 0) + 1;
  }
  return nlohmann::json{{"requests_by_path", counts}}.dump();
}

}  // namespace

experiment::SampleOutcome evaluate_remote_prefix(Transformer& model, std::span<const Request> prompts,
                                                 const EvaluatedMethod& evaluated, const RemotePrefixTask& task) {
  const Served served = serving_of(evaluated, task.links);
  const Point point(model, prompts, task, served);
  experiment::SampleOutcome outcome;
  results::SampleResult& result = outcome.result;
  cost_model::RemotePrefixRates rates;
  if (served.use == PrefixUse::path) {
    rates = point.rates();
    add(result, metrics::kPlannedTokensPerS, rates.tokens_per_second,
        {.clock = results::Clock::modelled, .storage = storage_of(task.links)});
  }
  const std::vector<PrefixRequest> requests = requests_of(prompts.size(), served, task, rates);
  for (int64_t i = 0; i < task.timing.warmup; ++i) (void)point.run(requests);
  Repeats repeats;
  PrefixRun run;
  for (int64_t i = 0; i < task.timing.repeats; ++i) {
    run = point.run(requests);
    repeats.note(run, requests, point.pilot(), task.links);
  }
  repeats.give(result, storage_of(task.links));
  describe_answer(result, prompts.front(), *run.answers.front().session);
  result.active = evaluated.reference || std::ranges::any_of(point.stored(), [](const StoredPrompt& stored) {
                    return stored.compressed && stored.compressed->bytes() < stored.full->bytes();
                  });
  result.activity_json = ways(requests);
  result.peak_bytes["device"] = run.peak_bytes;
  return outcome;
}

}  // namespace kvarena::evaluate
