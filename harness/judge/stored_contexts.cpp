#include "harness/judge/stored_contexts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/random.h"
#include "harness/engine/serving_engine.h"
#include "harness/judge/serving_point.h"
#include "harness/library/profiler.h"
#include "harness/method/eviction.h"
#include "harness/method/registry.h"
#include "metrics/statistics.h"

namespace kvarena::judge {
namespace {

using experiment::Verdict;
using library::CacheForm;
using library::ContextLibrary;
using nlohmann::json;
using serving::Outcome;
using serving::ServingRun;
using store::Clock;
using SteadyClock = std::chrono::steady_clock;

constexpr double kMilliseconds = 1e3;

/// What a request asks.
struct Ask {
  size_t context = 0;
  size_t question = 0;
};

/// How the cache of one request came.
struct Begun {
  std::optional<Tier> tier;
  double profiled = 1;  // quality of the form that it came in
  double load_s = 0;
  double restore_s = 0;
};

/// What all methods of a point share.
struct Point {
  std::vector<Ask> asks;
  std::vector<std::vector<int32_t>> full_answers;  // by request
  std::vector<double> full_scores;                 // 1 each
  std::vector<int64_t> prompt_tokens;
  double capacity = 0;
  std::vector<CacheForm> forms;                          // that policies choose among
  std::vector<std::shared_ptr<const Prefill>> prefills;  // by context
  std::vector<std::vector<placement::Form>> profiles;    // by context, of `forms`; empty where nobody chooses
  int64_t full_bytes = 0;                                // of all contexts, uncompressed and stored
};

const Request& request_of(const StoredContextsTask& task, const Ask& ask) {
  return task.asked[ask.context].test[ask.question];
}

/// Contexts by popularity, the first one most; of each its questions in turn.
std::vector<Ask> asks_of(const StoredContextsTask& task) {
  const RandomStream random(task.seed, fmt::format("asked contexts {}", task.point));
  std::vector<double> until;
  double sum = 0;
  for (size_t i = 0; i < task.asked.size(); ++i) {
    until.push_back(sum += std::pow(static_cast<double>(i + 1), -task.contexts.popularity));
  }
  std::vector<size_t> asked(task.asked.size(), 0);
  std::vector<Ask> asks;
  for (uint64_t r = 0; r < static_cast<uint64_t>(task.serving.requests); ++r) {
    const double draw = random.uniform(r) * sum;
    const auto context =
        std::min(static_cast<size_t>(std::ranges::upper_bound(until, draw) - until.begin()), until.size() - 1);
    asks.push_back({.context = context, .question = asked[context]++ % task.asked[context].test.size()});
  }
  return asks;
}

/// One method's forms for all contexts alike, or nothing.
std::optional<CacheForm> compressed_form(const Method& method) {
  const auto* placing = dynamic_cast<const PlacingMethod*>(&method);
  if (placing == nullptr || placing->compress_json().empty()) return std::nullopt;
  return CacheForm{.label = placing->compress_json(),
                   .keep = json::parse(placing->compress_json()).value("keep", 1.0),
                   .method = placing->compressor()};
}

bool chooses(const Method& method) {
  return method.placement() != nullptr && method.placement()->chooses_forms() && !compressed_form(method);
}

std::vector<CacheForm> forms_of(const Method& method, const Point& point) {
  if (chooses(method)) return point.forms;
  const auto one = compressed_form(method);
  return {one ? *one : CacheForm{}};
}

std::vector<CacheForm> configured_forms(const StoredContextsTask& task) {
  std::vector<CacheForm> forms = {CacheForm{}};
  for (const experiment::ComponentEntry& entry : task.contexts.forms) {
    json spec = json::parse(entry.settings_json);
    spec["name"] = entry.name;
    forms.push_back({.label = entry.label, .keep = spec.value("keep", 1.0), .method = make_method(spec, entry.label)});
  }
  return forms;
}

library::Query query_of(const AskedContext& context, const Request& request) {
  return {.tokens = {request.prompt.begin() + static_cast<std::ptrdiff_t>(context.tokens.size()), request.prompt.end()},
          .stop = request.stop};
}

std::vector<placement::Form> profile(Transformer& model, const StoredContextsTask& task, const Point& point,
                                     size_t context, std::span<const Request* const> asked) {
  std::vector<library::Query> queries;
  for (const Request* request : asked) queries.push_back(query_of(task.asked[context], *request));
  return library::profile_forms(model, *point.prefills[context], point.forms, queries,
                                [&](size_t i, std::span<const int32_t> answer, std::span<const int32_t> full) {
                                  return task.similarity(*asked[i], answer, full);
                                });
}

std::vector<ServedRequest> served_requests(const StoredContextsTask& task, const Point& point, const Method& full) {
  std::vector<ServedRequest> requests;
  for (const Ask& ask : point.asks) {
    const Request& request = request_of(task, ask);
    requests.push_back(
        {.prompt = request.prompt, .method = &full, .options = {.stop = request.stop, .sampling = request.sampling}});
  }
  return requests;
}

/// Full KV, all requests at once: capacity and reference answers.
void serve_reference(Transformer& model, const StoredContextsTask& task, Point& point) {
  const Method full;
  ServingEngine engine(model, served_requests(task, point, full), task.facts);
  const ServingRun run = serving::serve(all_at_once(point.asks.size()), engine, batch_settings(task.serving));
  if (const std::string trouble = trouble_of(run); !trouble.empty()) {
    throw UserError(fmt::format("full KV, which loads are measured by: {}", trouble));
  }
  point.capacity = capacity_of(run);
  for (size_t r = 0; r < point.asks.size(); ++r) {
    const auto& answer = engine.answer(static_cast<int64_t>(r));
    point.full_answers.push_back(answer ? answer->tokens : std::vector<int32_t>{});
    point.full_scores.push_back(1);
    point.prompt_tokens.push_back(static_cast<int64_t>(request_of(task, point.asks[r]).prompt.size()));
  }
}

/// Every context once, with what any method wants to see of it; profiled where somebody chooses.
void read_contexts(Transformer& model, const StoredContextsTask& task, std::span<const JudgedMethod> methods,
                   Point& point) {
  point.forms = configured_forms(task);
  Needs needs;
  bool profiled = false;
  for (const JudgedMethod& judged : methods) {
    profiled = profiled || chooses(*judged.method);
    for (const CacheForm& form : forms_of(*judged.method, point)) {
      if (form.method) needs = combine(needs, form.method->needs());
    }
  }
  for (size_t i = 0; i < task.asked.size(); ++i) {
    const AskedContext& context = task.asked[i];
    point.prefills.push_back(
        std::make_shared<const Prefill>(prefill(model, context.tokens, needs, kPrefillChunk, task.facts)));
    point.full_bytes += library::sized_forms(*point.prefills.back(), {{CacheForm{}}}).front().bytes;
    if (!profiled) continue;
    std::vector<const Request*> train;
    for (const Request& request : context.train) train.push_back(&request);
    point.profiles.push_back(profile(model, task, point, i, train));
  }
}

/// Memory, disk and remote as the config describes them.
library::LibraryPlace place_of(const StoredContextsTask& task, const Point& point) {
  const experiment::ContextSettings& s = task.contexts;
  const double latency = s.remote_latency_ms / kMilliseconds;
  std::vector<tiers::TierSettings> behind(2);
  behind[0] = {.tier = Tier::host, .link = {.name = "memory", .bytes_per_s = s.memory_bytes_per_s}};
  behind[1] = {.tier = Tier::remote,
               .link = {.name = "remote", .bytes_per_s = s.remote_bytes_per_s, .latency_s = latency}};
  const auto room = [&](double share) { return static_cast<int64_t>(share * static_cast<double>(point.full_bytes)); };
  return {.tiers = {{.tier = Tier::host,
                     .books = {.name = "memory", .capacity = room(s.memory_share), .bandwidth = s.memory_bytes_per_s}},
                    {.tier = Tier::disk,
                     .books = {.name = "disk", .capacity = room(s.disk_share), .bandwidth = s.disk_bytes_per_s},
                     .disk_link = {.name = "disk", .bytes_per_s = s.disk_bytes_per_s}},
                    {.tier = Tier::remote,
                     .books = {.name = "remote", .bandwidth = s.remote_bytes_per_s, .latency_s = latency}}},
          .hierarchy = std::make_shared<const tiers::Hierarchy>(behind),
          .folder = task.folder};
}

/// The engine's passes over stored contexts; between them what the store and the profiler have to do.
class StoredExecutor final : public serving::Executor {
 public:
  StoredExecutor(Transformer& model, const StoredContextsTask& task, const Point& point, ContextLibrary& library,
                 const placement::Policy& policy)
      : model_(&model),
        task_(&task),
        point_(&point),
        library_(&library),
        threshold_(policy.chooses_forms() && library.forms().size() > 1 ? policy.drift_threshold() : std::nullopt),
        drift_(threshold_.value_or(0), static_cast<size_t>(task.contexts.drift_answers)),
        begun_(point.asks.size()),
        recent_(task.asked.size()),
        engine_(model, requests(), task.facts) {}

  [[nodiscard]] serving::RequestNeeds needs(int64_t request) const override { return engine_.needs(request); }
  [[nodiscard]] int64_t bytes_to_end(int64_t request) const override { return engine_.bytes_to_end(request); }
  [[nodiscard]] int64_t bytes_now(int64_t request) const override { return engine_.bytes_now(request); }
  void drop(int64_t request) override { engine_.drop(request); }

  serving::PassResult run(const serving::PassPlan& plan) override {
    serving::PassResult result = engine_.run(plan);
    for (; !recalled_.empty(); recalled_.pop_front()) {
      library_->used(task_->asked[recalled_.front()].id, static_cast<double>(++uses_));
    }
    for (const serving::RequestProgress& progress : result.progress) {
      if (progress.finished) result.seconds += watch(static_cast<size_t>(progress.request));
    }
    return result;
  }

  [[nodiscard]] const ServingEngine& engine() const { return engine_; }
  [[nodiscard]] const std::vector<Begun>& begun() const { return begun_; }
  [[nodiscard]] int64_t reprofiled() const { return reprofiled_; }

 private:
  std::vector<ServedRequest> requests() {
    std::vector<ServedRequest> list = served_requests(*task_, *point_, full_);
    for (size_t r = 0; r < list.size(); ++r) {
      list[r].begun = static_cast<int64_t>(task_->asked[point_->asks[r].context].tokens.size());
      list[r].begin = [this, r] { return begin(r); };
    }
    return list;
  }

  KvCache begin(size_t request) {
    const size_t context = point_->asks[request].context;
    library::Recalled recalled = library_->recall(task_->asked[context].id);
    recalled_.push_back(context);
    begun_[request] = {.tier = recalled.tier,
                       .profiled = recalled.form.quality,
                       .load_s = recalled.load_s,
                       .restore_s = recalled.restore_s};
    return std::move(recalled.cache);
  }

  /// An answer beside what its form promised; the seconds of profiling anew when the context has drifted.
  double watch(size_t request) {
    if (!threshold_) return 0;
    const Ask& ask = point_->asks[request];
    const AskedContext& context = task_->asked[ask.context];
    const Request& asked = request_of(*task_, ask);
    const double reached =
        task_->similarity(asked, engine_.answer(static_cast<int64_t>(request))->tokens, point_->full_answers[request]);
    std::vector<const Request*>& recent = recent_[ask.context];
    std::erase(recent, &asked);
    recent.push_back(&asked);
    if (static_cast<int64_t>(recent.size()) > task_->contexts.drift_answers) recent.erase(recent.begin());
    drift_.note(context.id, reached, begun_[request].profiled);
    if (!drift_.drifted(context.id)) return 0;
    const auto start = SteadyClock::now();
    library_->reprofile(context.id, profile(*model_, *task_, *point_, ask.context, recent));
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
    library_->rearrange();
    drift_.forget(context.id);
    ++reprofiled_;
    return seconds;
  }

  Transformer* model_;
  const StoredContextsTask* task_;
  const Point* point_;
  ContextLibrary* library_;
  const Method full_;
  std::optional<double> threshold_;
  library::DriftWatch drift_;
  std::vector<Begun> begun_;                         // by request
  std::deque<size_t> recalled_;                      // contexts used in the pass under way
  std::vector<std::vector<const Request*>> recent_;  // by context, the newest last
  int64_t uses_ = 0;
  int64_t reprofiled_ = 0;
  ServingEngine engine_;
};

void add_begun(store::SampleResult& result, const std::vector<Begun>& begun) {
  const auto share = [&](std::optional<Tier> tier) {
    const auto count = std::ranges::count_if(begun, [&](const Begun& one) { return one.tier == tier; });
    return static_cast<double>(count) / static_cast<double>(begun.size());
  };
  add(result, Clock::none, "memory_hits", share(Tier::host), "fraction");
  add(result, Clock::none, "disk_hits", share(Tier::disk), "fraction");
  add(result, Clock::none, "remote_hits", share(Tier::remote), "fraction");
  add(result, Clock::none, "recomputed_contexts", share(std::nullopt), "fraction");
  std::vector<double> load, restore;
  for (const Begun& one : begun) {
    load.push_back(one.load_s);
    restore.push_back(one.restore_s);
  }
  add(result, Clock::measured, "cache_load_ms", mean_of(load) * kMilliseconds, "ms");
  add(result, Clock::measured, "cache_restore_ms", mean_of(restore) * kMilliseconds, "ms");
}

/// Where the contexts lie in the end, and in which forms.
void add_placement(store::SampleResult& result, const ContextLibrary& library) {
  const placement::TieredContexts& books = library.store().books();
  add(result, Clock::none, "peak_memory_bytes", static_cast<double>(books.peak(0)), "bytes");
  add(result, Clock::none, "peak_disk_bytes", static_cast<double>(books.peak(1)), "bytes");
  std::vector<double> keeps[3];
  store::Series keep{.name = "context_keep", .unit = "fraction"};
  store::Series tier{.name = "context_tier", .unit = "tier"};
  for (const placement::Context& context : books.contexts()) {
    const double share = context.form(context.at).keep;
    keeps[context.at.tier].push_back(share);
    keep.values.push_back(static_cast<float>(share));
    tier.values.push_back(static_cast<float>(context.at.tier));
  }
  if (!keeps[0].empty()) add(result, Clock::none, "keep_in_memory", mean_of(keeps[0]), "fraction");
  if (!keeps[1].empty()) add(result, Clock::none, "keep_on_disk", mean_of(keeps[1]), "fraction");
  result.series.push_back(std::move(keep));
  result.series.push_back(std::move(tier));
}

/// The point's requests as one sample of the cell; returns what each answer is worth.
std::vector<double> describe_answers(store::SampleResult& result, const StoredContextsTask& task, const Point& point,
                                     const ServingEngine& engine, const ServingRun& run) {
  std::string prompts;
  std::vector<double> scores, end_to_end;
  int64_t refused = 0;
  store::Series similarity{.name = "answer_similarity", .unit = "fraction"};
  for (size_t r = 0; r < point.asks.size(); ++r) {
    const Request& request = request_of(task, point.asks[r]);
    const auto& answer = engine.answer(static_cast<int64_t>(r));
    prompts += request.sample->prompt_sha256;
    result.prompt_tokens += point.prompt_tokens[r];
    scores.push_back(answer ? task.similarity(request, answer->tokens, point.full_answers[r]) : 0);
    similarity.values.push_back(static_cast<float>(scores.back()));
    refused += run.requests[r].outcome == Outcome::refused ? 1 : 0;
    if (!answer) continue;
    result.output_tokens += static_cast<int64_t>(answer->tokens.size());
    end_to_end.push_back(run.requests[r].token_s.back() - run.requests[r].arrival_s);
  }
  result.prompt_sha256 = sha256(prompts);
  result.finish_reason = "served";
  result.wall_s = run.busy_seconds;
  result.series.push_back(std::move(similarity));
  add_series(result, Clock::measured, "end_to_end_ms", end_to_end);
  add(result, Clock::none, "served_score", mean_of(scores), "fraction");
  add(result, Clock::none, "refused_requests", static_cast<double>(refused), "requests");
  add(result, Clock::measured, "peak_cache_bytes", static_cast<double>(run.peak_held_bytes), "bytes");
  return scores;
}

/// A run of whole prompts, or of requests that begin with stored contexts.
void describe_run(store::SampleResult& result, const StoredContextsTask& task, const Point& point,
                  const ServingEngine& engine, const ServingRun& run, double rate) {
  const std::vector<double> scores = describe_answers(result, task, point, engine, run);
  add_run(result, Clock::measured, task.serving,
          {.run = run,
           .rate = rate,
           .scores = scores,
           .full_scores = point.full_scores,
           .prompt_tokens = point.prompt_tokens});
}

Verdict judge_full(Transformer& model, const StoredContextsTask& task, const Point& point, serving::Load load,
                   double rate) {
  Verdict verdict;
  const Method full;
  ServingEngine engine(model, served_requests(task, point, full), task.facts);
  const ServingRun run = serving::serve(std::move(load), engine, batch_settings(task.serving));
  verdict.failure = trouble_of(run);
  if (!verdict.failure.empty()) return verdict;
  describe_run(verdict.result, task, point, engine, run, rate);
  verdict.result.active = true;
  return verdict;
}

Verdict judge_policy(Transformer& model, const StoredContextsTask& task, const Point& point, const Method& method,
                     serving::Load load, double rate) {
  Verdict verdict;
  const placement::Policy& policy = *method.placement();
  ContextLibrary library(model, task.facts, forms_of(method, point), place_of(task, point), policy);
  for (size_t i = 0; i < task.asked.size(); ++i) {
    std::optional<std::vector<placement::Form>> known;
    if (chooses(method)) known = point.profiles[i];
    library.add(task.asked[i].id, point.prefills[i], 0, std::move(known));
  }
  StoredExecutor executor(model, task, point, library, policy);
  const ServingRun run = serving::serve(std::move(load), executor, batch_settings(task.serving));
  verdict.failure = trouble_of(run);
  if (!verdict.failure.empty()) return verdict;
  describe_run(verdict.result, task, point, executor.engine(), run, rate);
  add_begun(verdict.result, executor.begun());
  add_placement(verdict.result, library);
  add(verdict.result, Clock::none, "reprofiled_contexts", static_cast<double>(executor.reprofiled()), "contexts");
  verdict.result.active = true;
  return verdict;
}

/// The folder is gone when this is.
struct FolderGuard {
  std::filesystem::path folder;
  explicit FolderGuard(std::filesystem::path path) : folder(std::move(path)) {}
  ~FolderGuard() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  FolderGuard(const FolderGuard&) = delete;
  FolderGuard& operator=(const FolderGuard&) = delete;
};

}  // namespace

std::vector<Verdict> judge_stored_contexts(Transformer& model, const StoredContextsTask& task,
                                           std::span<const JudgedMethod> methods) {
  const FolderGuard guard(task.folder);
  Point point{.asks = asks_of(task)};
  serve_reference(model, task, point);
  read_contexts(model, task, methods, point);
  const ServingPoint load{
      .settings = task.serving, .requests = point.asks.size(), .point = task.point, .seed = task.seed};
  std::vector<Verdict> verdicts;
  for (const JudgedMethod& judged : methods) {
    double rate = 0;
    serving::Load arrivals = load_of(load, point.capacity, rate);
    try {
      if (judged.method->placement() != nullptr) {
        verdicts.push_back(judge_policy(model, task, point, *judged.method, std::move(arrivals), rate));
      } else if (judged.reference) {
        verdicts.push_back(judge_full(model, task, point, std::move(arrivals), rate));
      } else {
        verdicts.push_back({.failure = "it places no contexts: over stored contexts methods are policies, which take a "
                                       "compression method as \"compress\", or full KV"});
      }
    } catch (const std::exception& error) {
      verdicts.push_back({.failure = error.what()});
    }
  }
  return verdicts;
}

}  // namespace kvarena::judge
