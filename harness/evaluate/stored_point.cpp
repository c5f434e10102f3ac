#include "harness/evaluate/stored_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "harness/engine/stored/profiler.h"
#include "harness/evaluate/method_files.h"
#include "harness/evaluate/serving_point.h"
#include "harness/method/eviction.h"
#include "harness/method/registry.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;
using serving::ServingRun;
using stored::CacheForm;

/// Draws contexts by popularity; the first one is drawn most often.
class Popularity {
 public:
  Popularity(size_t contexts, double exponent) {
    double sum = 0;
    for (size_t i = 0; i < contexts; ++i) until_.push_back(sum += std::pow(static_cast<double>(i + 1), -exponent));
  }
  /// `uniform` in [0, 1).
  [[nodiscard]] size_t draw(double uniform) const {
    const auto context = std::ranges::upper_bound(until_, uniform * until_.back()) - until_.begin();
    return std::min(static_cast<size_t>(context), until_.size() - 1);
  }

 private:
  std::vector<double> until_;
};

/// Draws contexts by popularity, and takes the questions of each in turn.
std::vector<Query> asks_of(const StoredContextsTask& task, const Popularity& popularity) {
  const RandomStream random(task.seed, fmt::format("asked contexts {}", task.point));
  std::vector<size_t> asked(task.asked.size(), 0);
  std::vector<Query> asks;
  for (uint64_t r = 0; r < static_cast<uint64_t>(task.serving.requests); ++r) {
    const size_t context = popularity.draw(random.uniform(r));
    asks.push_back({.context = context, .question = asked[context]++ % task.asked[context].test.size()});
  }
  return asks;
}

QueryHistory query_history(const StoredContextsTask& task, const Popularity& popularity) {
  const RandomStream random(task.seed, fmt::format("contexts asked before {}", task.point));
  QueryHistory before{.uses = std::vector<int64_t>(task.asked.size(), 1), .order = {}};
  std::vector<int64_t> last(task.asked.size(), -1);
  for (int64_t r = 0; r < task.contexts.past_requests; ++r) {
    const size_t context = popularity.draw(random.uniform(static_cast<uint64_t>(r)));
    ++before.uses[context];
    last[context] = r;
  }
  before.order.resize(task.asked.size());
  std::iota(before.order.begin(), before.order.end(), size_t{0});
  std::ranges::stable_sort(before.order, {}, [&](size_t context) { return last[context]; });
  return before;
}

/// The form that a placement policy compresses contexts to, or nothing.
std::optional<CacheForm> compressed_form(const Method& method) {
  const auto* placing = dynamic_cast<const PlacingMethod*>(&method);
  if (placing == nullptr || !placing->compressor()) return std::nullopt;
  const Nested<Method>& compressor = placing->compressor();
  return CacheForm{.label = compressor.settings(),
                   .keep = json::parse(compressor.settings()).value("keep", 1.0),
                   .method = compressor.shared()};
}

std::vector<CacheForm> configured_forms(const StoredContextsTask& task) {
  std::vector<CacheForm> forms = {CacheForm{}};
  for (const experiment::ComponentEntry& entry : task.contexts.forms) {
    const json spec = spec_of(entry);
    forms.push_back({.label = entry.label, .keep = spec.value("keep", 1.0), .method = make_method(spec, entry.label)});
  }
  return forms;
}

stored::Query query_of(const ContextWithQueries& context, const Request& request) {
  return {.tokens = {request.prompt.begin() + static_cast<std::ptrdiff_t>(context.tokens.size()), request.prompt.end()},
          .stop = request.stop};
}

struct ProfileQueries {
  std::vector<stored::Query> queries;
  stored::AnswerQuality quality;
};

ProfileQueries profile_queries(const StoredContextsTask& task, size_t context, std::span<const Request* const> asked) {
  ProfileQueries queries;
  for (const Request* request : asked) queries.queries.push_back(query_of(task.asked[context], *request));
  queries.quality = [&task, requests = std::vector<const Request*>(asked.begin(), asked.end())](
                        size_t i, std::span<const int32_t> answer, std::span<const int32_t> full) {
    return task.similarity(*requests[i], answer, full);
  };
  return queries;
}

/// Room for answers that profile a context before requests come: that of the requests.
stored::AnswerRoom profile_room(const experiment::ServingSettings& serving, const Prefill& context) {
  const serving::BatchSettings settings = batch_settings(serving);
  const int64_t fit = settings.cache_bytes / std::max<int64_t>(1, context.cache.bytes());
  return {.answers = std::clamp<int64_t>(fit, 1, settings.max_running)};
}

/// Serves all requests at once with full KV: capacity and reference answers.
void serve_reference(Transformer& model, const StoredContextsTask& task, StoredPoint& point) {
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

/// Prefills every context once with the needs of all methods, and profiles it where a policy chooses among forms.
void read_contexts(Transformer& model, const StoredContextsTask& task, std::span<const EvaluatedMethod> methods,
                   StoredPoint& point) {
  point.forms = configured_forms(task);
  Needs needs;
  bool profiled = false;
  for (const EvaluatedMethod& evaluated : methods) {
    profiled = profiled || chooses(*evaluated.method);
    for (const CacheForm& form : forms_of(*evaluated.method, point)) {
      if (form.method) needs = combine(needs, form.method->needs());
    }
  }
  for (size_t i = 0; i < task.asked.size(); ++i) {
    const ContextWithQueries& context = task.asked[i];
    const int64_t before = point.originals->bytes();
    point.originals->add(prefill(model, context.tokens, needs, kPrefillChunk, task.facts));
    point.full_bytes.push_back(point.originals->bytes() - before);
    if (!profiled) continue;
    std::vector<const Request*> train;
    for (const Request& request : context.train) train.push_back(&request);
    const ProfileQueries queries = profile_queries(task, i, train);
    const auto prompt = point.originals->read(i);
    point.profiles.push_back(stored::profile_forms(model, prompt, point.forms, queries.queries, queries.quality,
                                                   profile_room(task.serving, *prompt)));
  }
}

}  // namespace

const Request& request_of(const StoredContextsTask& task, const Query& ask) {
  return task.asked[ask.context].test[ask.question];
}

bool chooses(const Method& method) {
  return method.placement() != nullptr && method.placement()->chooses_forms() && !compressed_form(method);
}

std::vector<CacheForm> forms_of(const Method& method, const StoredPoint& point) {
  if (chooses(method)) return point.forms;
  const auto one = compressed_form(method);
  return {one ? *one : CacheForm{}};
}

std::unique_ptr<stored::ProfileRun> start_profile(Transformer& model, const StoredContextsTask& task,
                                                  const StoredPoint& point, size_t context,
                                                  std::shared_ptr<const Prefill> original,
                                                  std::span<const Request* const> asked) {
  const ProfileQueries queries = profile_queries(task, context, asked);
  return std::make_unique<stored::ProfileRun>(model, std::move(original), point.forms, queries.queries,
                                              queries.quality);
}

std::vector<ServedRequest> served_requests(const StoredContextsTask& task, const StoredPoint& point,
                                           const Method& full) {
  std::vector<ServedRequest> requests;
  for (const Query& ask : point.asks) {
    const Request& request = request_of(task, ask);
    requests.push_back(
        {.prompt = request.prompt, .method = &full, .options = {.stop = request.stop, .sampling = request.sampling}});
  }
  return requests;
}

StoredPoint read_point(Transformer& model, const StoredContextsTask& task, std::span<const EvaluatedMethod> methods,
                       const std::filesystem::path& originals) {
  const Popularity popularity(task.asked.size(), task.contexts.popularity);
  StoredPoint point{.asks = asks_of(task, popularity), .before = query_history(task, popularity)};
  point.originals = std::make_shared<stored::Originals>(model, originals);
  serve_reference(model, task, point);
  read_contexts(model, task, methods, point);
  return point;
}

}  // namespace kvarena::evaluate
