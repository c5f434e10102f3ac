#include "harness/engine/stored/profiler.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "harness/core/seconds_since.h"
#include "harness/engine/stored/stored_cache.h"

namespace kvarena::stored {
namespace {

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Adds to `known` the seconds from the form's bytes to the first token of a query behind it, null: to the cache; the
/// least of three. And what a tier of ready caches holds of it.
void measure(storage::Form& known, Transformer& model, const Prefill& context, const CacheForm& form,
             const Query* query) {
  const std::vector<std::byte> bytes = store_form(context, form);
  std::vector<int32_t> tokens = context.tokens;
  if (query != nullptr) tokens.insert(tokens.end(), query->tokens.begin(), query->tokens.end());
  known.ready_s = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    KvCache cache = restore_cache(model, *context.model, form.method.get(), bytes);
    model.upload(cache, 0);
    const double restored = seconds_since(start);
    if (query != nullptr) {
      PromptRun run(model, tokens, context.model, std::move(cache));
      run.set_chunk(run.remaining());
      PassMember* const one[] = {&run};
      run_pass(model, one);
    }
    const double ready = seconds_since(start);
    if (ready >= known.ready_s) continue;
    known.ready_s = ready;
    known.restore_s = restored;
  }
  if (form.ready) known.ready_bytes = ReadyCache(model, *context.model, form.method.get(), bytes).bytes();
}

}  // namespace

std::vector<storage::Form> profile_forms(Transformer& model, const std::shared_ptr<const Prefill>& context,
                                         std::span<const CacheForm> forms, std::span<const Query> queries,
                                         const AnswerQuality& quality, const AnswerRoom& room) {
  ProfileRun run(model, context, forms, {queries.begin(), queries.end()}, quality);
  while (!run.finished()) {
    const std::vector<PassMember*> members = run.next(room);
    if (members.empty()) run.wait(60);
    run_pass(model, members);
    run.passed();
  }
  std::vector<storage::Form> profile = run.profile();
  for (size_t f = 0; f < forms.size(); ++f) {
    measure(profile[f], model, *context, forms[f], queries.empty() ? nullptr : &queries.front());
  }
  return profile;
}

void DriftWatch::note(const std::string& context, double quality, double profiled) {
  std::vector<double>& gaps = gaps_[context];
  gaps.push_back(profiled - quality);
  if (gaps.size() > answers_) gaps.erase(gaps.begin());
}

bool DriftWatch::drifted(const std::string& context) const {
  const auto found = gaps_.find(context);
  return found != gaps_.end() && found->second.size() == answers_ && mean(found->second) > threshold_;
}

}  // namespace kvarena::stored
