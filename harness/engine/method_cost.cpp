#include "harness/engine/method_cost.h"

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/engine/session/selection_meter.h"
#include "harness/engine/session/session.h"

namespace kvarena {
namespace {

/// `tokens`: the prompt and the steps that follow it.
MethodCost cost_of(Transformer& model, const Method& method, std::span<const int32_t> tokens,
                   const std::shared_ptr<const ModelFacts>& facts, const std::string& place) {
  const std::vector<int32_t> forced(tokens.end() - kCostSteps, tokens.end());
  const std::vector<int32_t> prompt_ids(tokens.begin(), tokens.end() - kCostSteps);
  const Prefill prompt = prefill(model, prompt_ids, method.asks(), kPrefillChunk, facts);
  SelectionMeter meter(prompt.cache);
  SessionOptions session_options;
  session_options.forced = forced;
  session_options.meter = &meter;
  const auto session = start_session(model, prompt, method, std::move(session_options));
  Session* const sessions[] = {session.get()};
  run_together(model, sessions);
  if (session->finish == FinishReason::failed) fail({.place = place, .found = session->failure});

  const auto entries = static_cast<double>(prompt_ids.size());
  const double entry = static_cast<double>(prompt.cache.bytes()) / entries;
  MethodCost cost{.prompt = std::ssize(prompt_ids),
                  .resident = static_cast<double>(session->resident_bytes) / entry,
                  .host = static_cast<double>(session->peak_host_bytes) / entry};
  // The first step's, before the cache grows, and without the step's own entry.
  if (!meter.steps().empty()) cost.attended = meter.steps().front().attended - 1;
  for (const Traffic& pass : session->traffic) {
    cost.fetched += static_cast<double>(pass.loaded_bytes) / entry / static_cast<double>(session->traffic.size());
  }
  return cost;
}

/// On the line through the first cost and the last.
double along(std::span<const MethodCost> costs, double MethodCost::*cost, int64_t entries) {
  const MethodCost& a = costs.front();
  const MethodCost& b = costs.back();
  const double slope = (b.*cost - a.*cost) / static_cast<double>(b.prompt - a.prompt);
  return std::max(0.0, b.*cost + slope * static_cast<double>(entries - b.prompt));
}

}  // namespace

std::vector<MethodCost> measure_costs(Transformer& model, const Method& method, std::span<const int32_t> tokens,
                                      const std::shared_ptr<const ModelFacts>& facts, const std::string& place) {
  const int64_t longest = std::ssize(tokens) - kCostSteps;
  KVARENA_ASSERT(longest > 1, "two prompts of different lengths are measured");
  std::vector<MethodCost> costs;
  for (const int64_t length : {longest / 2, longest}) {
    costs.push_back(cost_of(model, method, tokens.first(static_cast<size_t>(length + kCostSteps)), facts, place));
  }
  return costs;
}

cost_model::CacheScheme scheme_at(std::span<const MethodCost> costs, double entry_bytes, int64_t entries) {
  const auto all = static_cast<double>(entries);
  const double fetched = std::min(all, along(costs, &MethodCost::fetched, entries));
  const double resident = std::max(0.0, along(costs, &MethodCost::resident, entries) - fetched);
  const double attended = along(costs, &MethodCost::attended, entries);
  cost_model::CacheScheme scheme;
  scheme.keep = std::clamp(resident / all, 1e-6, 1.0);
  scheme.index_bytes_per_entry = std::max(0.0, resident / all - 1) * entry_bytes;
  // A method that skips nothing attends to all that it keeps.
  if (attended < 0.999 * all) scheme.attended = std::max<int64_t>(1, std::llround(attended));
  scheme.offloaded = costs.back().host > 0;
  scheme.fetched = std::llround(fetched);
  return scheme;
}

}  // namespace kvarena
