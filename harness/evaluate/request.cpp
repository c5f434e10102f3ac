#include "harness/evaluate/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/engine/reuse/tiered_chunk_store.h"

namespace kvarena::evaluate {
namespace {

/// The offset of the earliest stop string, or npos.
size_t first_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return first;
}

}  // namespace

SamplingSettings sampling_of(const experiment::EngineSettings& engine, const datasets::Generation& generation) {
  return {.temperature = engine.temperature.value_or(generation.temperature),
          .top_p = engine.top_p.value_or(generation.top_p),
          .seed = static_cast<uint64_t>(engine.seed)};
}

double kl_temperature(const SamplingSettings& sampling) { return sampling.greedy() ? 1 : sampling.temperature; }

void resize_prompt(Request& request, int64_t tokens) {
  const std::vector<int32_t>& whole = request.prompt;
  const int64_t begin = request.layout.prefix;
  const int64_t end = request.layout.question.value_or(std::ssize(whole));
  const int64_t context = end - begin;
  const int64_t wanted = tokens - (request.asked_tokens() - context);
  if (wanted < 0 || (wanted > 0 && context <= 0)) {
    fail({.place = fmt::format("sample {}", request.sample->id),
          .found = fmt::format("{} tokens around a context of {}", request.asked_tokens() - context, context),
          .expected = fmt::format("a prompt that can be brought to {}", tokens),
          .action = "give request_tokens a longer prompt, or another workload"});
  }
  std::vector<int32_t> prompt(whole.begin(), whole.begin() + begin);
  const int64_t repeated = std::max<int64_t>(wanted - context, 0), head = (wanted + 1) / 2;
  for (int64_t i = 0; i < wanted; ++i) {
    const int64_t from = repeated > 0 ? (i < repeated ? i % context : i - repeated)  // the context's own end comes last
                                      : (i < head ? i : context - wanted + i);
    prompt.push_back(whole[static_cast<size_t>(begin + from)]);
  }
  prompt.insert(prompt.end(), whole.begin() + end, whole.end());
  if (request.layout.question) request.layout.question = begin + wanted;
  request.prompt = std::move(prompt);
  request.layout.text.clear();
  request.layout.ranges.clear();
  request.layout.results.clear();
}

std::shared_ptr<ReuseMemory> reuse_memory(const Request& request) {
  auto memory = std::make_shared<ReuseMemory>(ReuseMemory{.facts = request.facts});
  if (request.chunk_tier != Tier::device) {
    memory->chunks = std::make_shared<TieredChunkStore>(request.facts->tiers, request.chunk_tier);
  }
  return memory;
}

SessionOptions session_options(const Request& request) {
  return {.stop = request.stop,
          .sampling = request.sampling,
          .forced = std::nullopt,
          .question = request.question,
          .results = request.layout.results,
          .tokenizer = request.tokenizer};
}

std::string answer_text(const Request& request, std::span<const int32_t> tokens) {
  std::string text = text_after(request.thinking, *request.tokenizer, tokens);
  const size_t cut = first_stop(text, request.sample->generation.stop);
  if (cut != std::string::npos) text.resize(cut);
  return text;
}

StopRule stop_rule(const datasets::Sample& sample, const Tokenizer& tokenizer, const Thinking& thinking,
                   std::vector<int32_t> end_tokens, int64_t max_new_tokens) {
  StopRule rule{.max_new_tokens = max_new_tokens, .stop_tokens = std::move(end_tokens)};
  if (!sample.generation.stop_token_of.empty()) {
    const auto ids = tokenizer.encode(sample.generation.stop_token_of, {.add_special = false});
    if (!ids.empty()) rule.stop_tokens.push_back(ids.back());
  }
  if (!sample.generation.stop.empty()) {
    // A stop string may begin inside an earlier token: the whole answer is looked at, which is short.
    rule.stop_when = [&tokenizer, thinking, stops = sample.generation.stop](std::span<const int32_t> tokens) {
      return first_stop(text_after(thinking, tokenizer, tokens), stops) != std::string::npos;
    };
  }
  return rule;
}

}  // namespace kvarena::evaluate
