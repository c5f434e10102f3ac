#include "harness/method/prefill_pattern.h"

#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena {
namespace {

/// Why a method cannot take over behind a prompt that was read sparsely; empty if it can.
std::string cannot_follow(const Method& method) {
  if (method.prompt_pass() > 0 || method.pruner() != nullptr) return "reads prompts in its own way";
  if (method.reuser() != nullptr) return "takes entries from other prompts";
  if (method.verifier() != nullptr) return "verifies: let it draft with this method";
  if (method.placement() != nullptr) return "places stored contexts";
  if (method.looks_ahead()) return "reads a guess in each pass";
  const Needs needs = method.needs();
  if (needs.prompt_attention || !needs.statistics.empty()) return "needs the attention of all queries of the prompt";
  if (needs.future > 0) return "looks at what full KV answers";
  return "";
}

/// Whether the pass under way is the prompt's.
bool in_prompt(const LayerContext& layer) { return layer.request != nullptr && layer.request->length == 0; }

}  // namespace

void PrefillMethod::parameters(ParameterVisitor& p) {
  PartMethod::parameters(p);
  p("then", then_).doc("a method that compresses the prompt once it has been read, or retrieves from it");
}

void PrefillMethod::check(const std::string& place, std::vector<std::string>& problems) const {
  PartMethod::check(place, problems);
  check_within(then_, place + ".then", problems);
  const std::string reason = then_ ? cannot_follow(*then_) : "";
  if (reason.empty()) return;
  problems.push_back(describe({.place = place + ".then.name",
                               .found = fmt::format("\"{}\", which {}", then_.name(), reason),
                               .expected = "a method that compresses or retrieves after a prefill"}));
}

void PrefillMethod::select(LayerContext& layer, const LayerQueries& queries) const {
  if (queries.position == 0) return attend_sparsely(layer, queries);
  if (then_) then_->select(layer, queries);
}

void PrefillMethod::attend_sparsely(LayerContext& layer, const LayerQueries& queries) const {
  LayerCache& cache = layer.cache;
  const LayerShape& shape = cache.shape();
  const int64_t n = queries.q_len;
  if (shape.window > 0) return;
  const PromptRanges ranges = part_->attended(layer, queries);
  if (ranges.empty()) return;
  auto view = std::make_unique<EntryRangesView>(cache.tail(), ranges, cache.ledger());
  layer.activity.entries_skipped += shape.q_heads * (n * (n + 1) / 2) - view->pairs(n);
  cache.view = std::move(view);
}

void PrefillMethod::compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const {
  if (then_) then_->compress_all(layers, seen);
}

void PrefillMethod::on_tokens(RequestContext& request, std::span<const int32_t> tokens) const {
  if (then_ && request.cache.length > 0) then_->on_tokens(request, tokens);
}

void PrefillMethod::begin_step(RequestContext& request, int64_t q_len) const {
  if (then_ && request.cache.length > 0) then_->begin_step(request, q_len);
}

void PrefillMethod::observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const {
  if (then_ && queries.position > 0) then_->observe(layer, queries, lse);
}

void PrefillMethod::after_append(LayerContext& layer) const {
  if (then_ && !in_prompt(layer)) then_->after_append(layer);
}

void PrefillMethod::take_results(KvCache& cache, std::span<const ResultTokens> results) const {
  const auto* const reader = then_ ? dynamic_cast<const ReadsToolResults*>(&*then_) : nullptr;
  if (reader != nullptr) reader->take_results(cache, results);
}

}  // namespace kvarena
