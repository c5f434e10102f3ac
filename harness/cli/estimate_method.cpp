#include "harness/cli/estimate_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "datasets/texts/essays.h"
#include "harness/cli/registry_text.h"
#include "harness/core/error.h"
#include "harness/engine/session/selection_meter.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

constexpr int64_t kLongest = 1536;  // tokens of the longer prompt
constexpr int64_t kSteps = 16;      // decoded after it
constexpr double kBytes = 2;        // bytes of a number of full KV

std::unique_ptr<Method> method_with_a_cache(const json& asked) {
  auto method = make_method(asked, "--method");
  const char* found = method->verifier() != nullptr    ? "a verifier, which holds two caches and decodes in rounds"
                      : method->reuser() != nullptr    ? "a method that reuses entries of earlier prompts"
                      : method->placement() != nullptr ? "a policy that places many contexts"
                                                       : nullptr;
  if (found == nullptr) return method;
  fail({.place = "--method",
        .found = found,
        .expected = "a method that compresses or selects",
        .action = "of a verifier give the drafter, and --acceptance"});
}

std::vector<int32_t> prose(const Tokenizer& tokenizer, int64_t tokens) {
  for (size_t bytes = 8 * static_cast<size_t>(tokens);; bytes *= 2) {
    std::vector<int32_t> ids = tokenizer.encode(datasets::write_essays(1, bytes));
    if (std::ssize(ids) < tokens) continue;
    ids.resize(static_cast<size_t>(tokens));
    return ids;
  }
}

/// Measures a method's cost; `tokens` are the prompt and the steps that follow it.
MethodCost cost_of(Transformer& model, const Method& method, std::span<const int32_t> tokens,
                   const std::shared_ptr<const ModelFacts>& facts) {
  const std::vector<int32_t> forced(tokens.end() - kSteps, tokens.end());
  const std::vector<int32_t> prompt_ids(tokens.begin(), tokens.end() - kSteps);
  const Prefill prompt = prefill(model, prompt_ids, method.needs(), kPrefillChunk, facts);
  SelectionMeter meter(prompt.cache);
  SessionOptions session_options;
  session_options.forced = forced;
  session_options.meter = &meter;
  const auto session = start_session(model, prompt, method, std::move(session_options));
  Session* const sessions[] = {session.get()};
  run_together(model, sessions);
  if (session->finish == FinishReason::failed) fail({.place = "--method", .found = session->failure});

  const auto entries = static_cast<double>(prompt_ids.size());
  const double entry = static_cast<double>(prompt.cache.bytes()) / entries;
  MethodCost cost{.prompt = std::ssize(prompt_ids),
                  .resident = static_cast<double>(session->resident_bytes) / entry,
                  .host = static_cast<double>(session->peak_host_bytes) / entry};
  // The first step, before the cache grows, without the step's own entry.
  if (!meter.steps().empty()) cost.attended = meter.steps().front().attended - 1;
  for (const Traffic& pass : session->traffic) {
    cost.fetched += static_cast<double>(pass.loaded_bytes) / entry / static_cast<double>(session->traffic.size());
  }
  return cost;
}

/// The cost at `context` on the line through both measured points, at least 0.
double along(const MeasuredMethod& method, double MethodCost::*cost, int64_t context) {
  const MethodCost& a = method.costs.front();
  const MethodCost& b = method.costs.back();
  const double slope = (b.*cost - a.*cost) / static_cast<double>(b.prompt - a.prompt);
  return std::max(0.0, b.*cost + slope * static_cast<double>(context - b.prompt));
}

}  // namespace

std::vector<MeasuredMethod> measure_methods(const std::vector<json>& methods, const ModelOptions& options) {
  std::vector<std::unique_ptr<Method>> made;
  for (const json& asked : methods) made.push_back(method_with_a_cache(asked));
  if (made.empty()) return {};
  const OpenedModel opened = open_chosen(options);
  const int64_t longest = std::min(kLongest, opened.config.max_position - kSteps);
  const std::vector<int32_t> tokens = prose(*opened.tokenizer, longest + kSteps);
  Transformer model = load_weights(opened, options);
  const auto facts = facts_of(opened, model);
  std::vector<MeasuredMethod> measured;
  for (size_t i = 0; i < made.size(); ++i) {
    measured.push_back({.label = short_form(methods[i])});
    for (const int64_t length : {longest / 2, longest}) {
      measured.back().costs.push_back(
          cost_of(model, *made[i], std::span(tokens).first(static_cast<size_t>(length + kSteps)), facts));
    }
  }
  return measured;
}

cost_model::CacheScheme scheme_at(const MeasuredMethod& method, const cost_model::ModelShape& shape, int64_t context) {
  const auto entries = static_cast<double>(context);
  const double fetched = std::min(entries, along(method, &MethodCost::fetched, context));
  const double resident = std::max(0.0, along(method, &MethodCost::resident, context) - fetched);
  const double attended = along(method, &MethodCost::attended, context);
  cost_model::CacheScheme scheme{.label = method.label};
  scheme.keep = std::clamp(resident / entries, 1e-6, 1.0);
  scheme.index_bytes_per_entry =
      std::max(0.0, resident / entries - 1) * kBytes * static_cast<double>(shape.numbers_per_entry());
  // A method that skips nothing attends to all that it keeps.
  if (attended < 0.999 * entries) scheme.attended = std::max<int64_t>(1, std::llround(attended));
  scheme.offloaded = method.costs.back().host > 0;
  scheme.fetched = std::llround(fetched);
  return scheme;
}

}  // namespace kvarena::cli
