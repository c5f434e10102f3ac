#include "harness/evaluate/stored_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "harness/evaluate/serving_point.h"

namespace kvarena::evaluate {
namespace {

using serving::ServingRun;

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

/// Draws contexts by popularity, which shifts halfway, and takes the questions of each in turn.
std::vector<Query> asks_of(const StoredContextsTask& task, const Popularity& popularity) {
  const RandomStream random(task.seed, fmt::format("asked contexts {}", task.point));
  std::vector<size_t> asked(task.asked.size(), 0);
  std::vector<Query> asks;
  const auto half = static_cast<uint64_t>(task.serving.requests / 2);
  for (uint64_t r = 0; r < static_cast<uint64_t>(task.serving.requests); ++r) {
    const size_t shift = r < half ? 0 : static_cast<size_t>(task.contexts.popularity_shift);
    const size_t context = (popularity.draw(random.uniform(r)) + shift) % task.asked.size();
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

}  // namespace

const Request& request_of(const StoredContextsTask& task, const Query& ask) {
  return task.asked[ask.context].test[ask.question];
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

StoredPoint read_point(Transformer& model, const StoredContextsTask& task, const StoredSet& set) {
  const Popularity popularity(task.asked.size(), task.contexts.popularity);
  StoredPoint point{.set = &set, .asks = asks_of(task, popularity), .before = query_history(task, popularity)};
  serve_reference(model, task, point);
  return point;
}

}  // namespace kvarena::evaluate
