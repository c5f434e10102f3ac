#include "harness/evaluate/request.h"

#include <algorithm>

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

std::shared_ptr<ReuseMemory> reuse_memory(const Request& request) {
  auto memory = std::make_shared<ReuseMemory>();
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
          .tokenizer = request.tokenizer};
}

std::string answer_text(const Request& request, std::span<const int32_t> tokens) {
  std::string text = request.tokenizer->decode(tokens);
  const size_t cut = first_stop(text, request.sample->generation.stop);
  if (cut != std::string::npos) text.resize(cut);
  return text;
}

StopRule stop_rule(const datasets::Sample& sample, const Tokenizer& tokenizer, std::vector<int32_t> end_tokens,
                   int64_t max_new_tokens) {
  StopRule rule{.max_new_tokens = max_new_tokens, .stop_tokens = std::move(end_tokens)};
  if (!sample.generation.stop_token_of.empty()) {
    const auto ids = tokenizer.encode(sample.generation.stop_token_of, {.add_special = false});
    if (!ids.empty()) rule.stop_tokens.push_back(ids.back());
  }
  if (!sample.generation.stop.empty()) {
    // A stop string may begin inside an earlier token: the whole answer is looked at, which is short.
    rule.stop_when = [&tokenizer, stops = sample.generation.stop](std::span<const int32_t> tokens) {
      return first_stop(tokenizer.decode(tokens), stops) != std::string::npos;
    };
  }
  return rule;
}

}  // namespace kvarena::evaluate
