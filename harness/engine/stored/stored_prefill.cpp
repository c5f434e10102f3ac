#include "harness/engine/stored/stored_prefill.h"

#include <fmt/format.h>

#include "harness/cache/byte_stream.h"
#include "harness/engine/session/reconstruction.h"
#include "harness/engine/stored/stored_cache.h"
#include "harness/model/pass_checks.h"

namespace kvarena {
namespace {

/// Calls `each` for the vectors of numbers that were observed of a layer, in their order at rest.
template <typename Seen, typename Each>
void for_numbers(Seen& seen, Each&& each) {
  each(seen.prompt_attention);
  each(seen.window_queries);
  each(seen.window_lse);
  each(seen.hidden);
  each(seen.future_attention);
  each(seen.residual);
  for (auto& moments : seen.query_moments) each(moments.mean), each(moments.covariance);
  for (auto& scores : seen.reconstructions) each(scores.scores);
  for (auto& restored : seen.restorations) each(restored.keys), each(restored.values);
  for (auto& statistic : seen.statistics) each(statistic.sums);
}

void put_text(CacheWriter& to, const std::string& text) {
  to.put<int64_t>(std::ssize(text));
  to.put_all(std::span<const char>(text));
}

std::string get_text(CacheReader& from) {
  std::string text;
  from.get_vector(text, static_cast<size_t>(from.get_count(1)));
  return text;
}

void put_observations(CacheWriter& to, const LayerObservations& seen) {
  to.put(seen.entries);
  to.put(seen.window);
  to.put<int64_t>(std::ssize(seen.query_moments));
  for (const QueryMoments& moments : seen.query_moments) to.put(moments.left_out), to.put(moments.count);
  to.put<int64_t>(std::ssize(seen.reconstructions));
  for (const ReconstructionScores& scores : seen.reconstructions) to.put(scores.prefix);
  for (const RestoredEntries& restored : seen.restorations) to.put(restored.tokens);
  to.put<int64_t>(std::ssize(seen.statistics));
  for (const GatheredStatistic& statistic : seen.statistics) put_text(to, statistic.id), to.put(statistic.width);
  for_numbers(seen, [&](const auto& numbers) {
    to.put<int64_t>(std::ssize(numbers));
    to.put_all(std::span(numbers));
  });
}

LayerObservations get_observations(CacheReader& from, const Needs& needs) {
  LayerObservations seen;
  seen.entries = from.get<int64_t>();
  seen.window = from.get<int64_t>();
  seen.query_moments.resize(static_cast<size_t>(from.get_count(2 * sizeof(int64_t))));
  for (QueryMoments& moments : seen.query_moments) {
    moments.left_out = from.get<int64_t>();
    moments.count = from.get<int64_t>();
  }
  const int64_t reconstructions = from.get_count(sizeof(int64_t));
  if (reconstructions != std::ssize(needs.reconstructions))
    CacheReader::damaged(fmt::format("{} reconstructions", reconstructions),
                         fmt::format("{}", needs.reconstructions.size()));
  for (const Reconstruction& what : needs.reconstructions)
    seen.reconstructions.push_back({.of = what, .prefix = from.get<int64_t>(), .scores = {}});
  for (const std::string& adapter : needs.restorations)
    seen.restorations.push_back({.adapter = adapter, .tokens = from.get<int64_t>(), .keys = {}, .values = {}});
  seen.statistics.resize(static_cast<size_t>(from.get_count(2 * sizeof(int64_t))));
  for (GatheredStatistic& statistic : seen.statistics) {
    statistic.id = get_text(from);
    statistic.width = from.get<int64_t>();
  }
  for_numbers(seen, [&](auto& numbers) {
    const int64_t count = from.get_count(sizeof(numbers[0]));
    from.get_vector(numbers, static_cast<size_t>(count));
  });
  return seen;
}

}  // namespace

std::vector<std::byte> store_prefill(const Transformer& model, const Prefill& prompt) {
  require_entries(model.config(), "prompt of a stored cache", "a cache at rest");
  CacheWriter to;
  const std::vector<std::byte> cache = store_cache(prompt, nullptr);
  to.put<int64_t>(std::ssize(cache));
  to.put_all(std::span(cache));
  to.put<int64_t>(std::ssize(prompt.logits));
  to.put_all(std::span(prompt.logits));
  to.put<int64_t>(std::ssize(prompt.observations));
  for (const LayerObservations& seen : prompt.observations) put_observations(to, seen);
  return to.take();
}

Prefill restore_prefill(Transformer& model, std::span<const int32_t> tokens, const Needs& needs,
                        std::shared_ptr<const ModelFacts> facts, std::span<const std::byte> bytes) {
  Prefill prompt = unread_prompt(model, tokens, std::move(facts));
  CacheReader from(bytes);
  const auto cache = from.take(static_cast<size_t>(from.get_count(1)));
  prompt.cache = restore_cache(model, *prompt.model, nullptr, cache);
  from.get_vector(prompt.logits, static_cast<size_t>(from.get_count(sizeof(float))));
  prompt.observations.resize(static_cast<size_t>(from.get_count(2 * sizeof(int64_t))));
  for (LayerObservations& seen : prompt.observations) seen = get_observations(from, needs);
  if (needs.output_projection) observe_output_projection(model, prompt);
  if (!from.empty()) CacheReader::damaged("more bytes", "the end");
  return prompt;
}

}  // namespace kvarena
