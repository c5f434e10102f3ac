#include "harness/engine/stored/profiler.h"

#include <fmt/format.h>

#include <numeric>

#include "harness/core/error.h"
#include "harness/engine/stored/stored_cache.h"

namespace kvarena::stored {
namespace {

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// A query's prompt behind a cache of the context.
std::unique_ptr<PromptRun> begin(Transformer& model, const std::shared_ptr<const ModelFacts>& facts,
                                 std::span<const int32_t> context, const KvCache& cache, const Query& query) {
  std::vector<int32_t> tokens(context.begin(), context.end());
  tokens.insert(tokens.end(), query.tokens.begin(), query.tokens.end());
  return std::make_unique<PromptRun>(model, tokens, facts, cache.clone());
}

}  // namespace

std::vector<std::vector<int32_t>> answer_queries(Transformer& model, const std::shared_ptr<const ModelFacts>& facts,
                                                 std::span<const int32_t> context, const KvCache& cache,
                                                 std::span<const Query> queries) {
  std::vector<std::unique_ptr<PromptRun>> prompts;
  std::vector<PassMember*> reading;
  for (const Query& query : queries) {
    prompts.push_back(begin(model, facts, context, cache, query));
    prompts.back()->set_chunk(prompts.back()->remaining());
    reading.push_back(prompts.back().get());
  }
  run_pass(model, reading);

  const Method full;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Prefill prompt = prompts[i]->finish();
    prompts[i].reset();
    sessions.push_back(start_session(model, prompt, full, {.stop = queries[i].stop}));
    running.push_back(sessions.back().get());
  }
  run_together(model, running);
  std::vector<std::vector<int32_t>> answers;
  for (const auto& session : sessions) answers.push_back(session->tokens);
  return answers;
}

std::vector<storage::Form> profile_forms(Transformer& model, const Prefill& context, std::span<const CacheForm> forms,
                                         std::span<const Query> queries, const AnswerQuality& quality) {
  const auto full = answer_queries(model, context.model, context.tokens, context.cache, queries);
  std::vector<storage::Form> profile;
  for (const CacheForm& form : forms) {
    try {
      const std::vector<std::byte> bytes = store_cache(context, form.method.get());
      storage::Form& known = profile.emplace_back(
          storage::Form{.method = form.label, .keep = form.keep, .bytes = static_cast<int64_t>(bytes.size())});
      if (form.method == nullptr || queries.empty()) continue;
      const KvCache cache = restore_cache(model, *context.model, form.method.get(), bytes);
      const auto answers = answer_queries(model, context.model, context.tokens, cache, queries);
      std::vector<double> reached;
      for (size_t i = 0; i < answers.size(); ++i) reached.push_back(quality(i, answers[i], full[i]));
      known.quality = mean(reached);
    } catch (const UserError& error) {
      throw UserError(fmt::format("form \"{}\": {}", form.label, error.what()));
    }
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
