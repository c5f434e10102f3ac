#include "harness/engine/reuse/reuse_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>

#include "harness/core/error.h"
#include "harness/engine/reuse/narrowing.h"
#include "harness/engine/reuse/recovery.h"
#include "harness/engine/reuse/speculation.h"

namespace kvarena {
namespace {

class Clock {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::span<const int32_t> tokens_of(const ReusePrompt& prompt, const PromptPart& part) {
  return prompt.tokens.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.end - part.begin));
}

/// The beginning that other prompts share: the prefix and the first chunk behind it. One token is always left, whose
/// logits are wanted.
std::span<const int32_t> shared_beginning(const ReusePrompt& prompt, int64_t prefix) {
  int64_t end = 0;
  for (const PromptPart& part : prompt.parts) {
    end = part.end;
    if (part.end > prefix) break;
  }
  return prompt.tokens.first(static_cast<size_t>(end));
}

PrefixTree& prefixes(ReuseMemory& memory, const Reuser& reuser) {
  return memory.prefixes.try_emplace(reuser.block(), reuser.block()).first->second;
}

/// Fills `cache` with what the memory holds.
void load(const Transformer& model, const ReusePrompt& prompt, const Reuser& reuser, ReuseMemory& memory,
          KvCache& cache) {
  switch (reuser.source()) {
    case ReuseSource::nothing: return;
    case ReuseSource::prefix:
      prefixes(memory, reuser).read(prompt.tokens.first(prompt.tokens.size() - 1), cache);
      return;
    case ReuseSource::chunks:
      for (const PromptPart& part : prompt.parts) {
        const ChunkCache chunk = memory.chunks->find(chunk_key(model, tokens_of(prompt, part)));
        KVARENA_ASSERT(chunk != nullptr, fmt::format("no entries of tokens {} to {}", part.begin, part.end));
        append_recovered(model, *chunk, cache);
      }
      return;
  }
}

/// Context tokens to compute, checked.
std::vector<int32_t> chosen(const Reuser& reuser, const ReusePrompt& prompt) {
  std::vector<int32_t> selected = reuser.select(prompt);
  const bool valid = std::ranges::adjacent_find(selected, std::greater_equal{}) == selected.end() &&
                     (selected.empty() || (selected.front() >= 0 && selected.back() < prompt.question));
  KVARENA_ASSERT(valid, fmt::format("a selection that does not ascend in a context of {} tokens", prompt.question));
  return selected;
}

}  // namespace

ReusePrompt reuse_prompt_of(std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser) {
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  ReusePrompt prompt{
      .tokens = tokens, .parts = {}, .question = std::clamp<int64_t>(layout.question.value_or(last), 0, last)};
  prompt.parts = cut_parts(layout.prefix, prompt.question, reuser.chunk());
  return prompt;
}

void prime(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser,
           ReuseMemory& memory) {
  const ReusePrompt prompt = reuse_prompt_of(tokens, layout, reuser);
  switch (reuser.source()) {
    case ReuseSource::nothing: return;
    case ReuseSource::prefix: {
      const auto beginning = shared_beginning(prompt, layout.prefix);
      PrefixTree& tree = prefixes(memory, reuser);
      const auto whole = static_cast<int64_t>(beginning.size()) / reuser.block() * reuser.block();
      if (tree.match(beginning) < whole) tree.insert(beginning, *compute_chunk(model, beginning));
      return;
    }
    case ReuseSource::chunks:
      for (const PromptPart& part : prompt.parts) {
        const auto own = tokens_of(prompt, part);
        const std::string key = chunk_key(model, own);
        if (memory.chunks->find(key) == nullptr) memory.chunks->put(key, compute_chunk(model, own));
      }
      return;
  }
}

ReusedPrompt reuse_prompt(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout,
                          const Reuser& reuser, ReuseMemory& memory) {
  const Clock total;
  const auto n = static_cast<int64_t>(tokens.size());
  if (reuser.source() == ReuseSource::chunks) require_recoverable(model, n);
  ReusePrompt prompt = reuse_prompt_of(tokens, layout, reuser);
  ReusedPrompt result{.cache = model.make_cache(), .logits = {}, .record = {}};
  ReuseRecord& record = result.record;
  result.cache.prompt_length = n;
  const auto load_entries = [&] {
    const Clock clock;
    load(model, prompt, reuser, memory, result.cache);
    record.load_s = clock.seconds();
  };

  Speculation speculation;
  if (const auto speculative = reuser.speculative()) {
    std::future<void> loading = std::async(std::launch::async, load_entries);
    const Clock clock;
    speculation = speculate(model, tokens, layout, *speculative);
    record.score_s = clock.seconds();
    loading.get();
    prompt.speculation = &speculation;
  } else {
    load_entries();
  }
  record.loaded_bytes = result.cache.bytes();

  const Clock choosing;
  std::vector<int32_t> rows;
  if (reuser.source() == ReuseSource::chunks) rows = chosen(reuser, prompt);
  record.align_s = choosing.seconds();

  const Clock computing;
  const int64_t held = result.cache.length;
  for (int64_t position = held; position < n; ++position) rows.push_back(static_cast<int32_t>(position));
  Narrowing narrowing(reuser, prompt.question, model.config().layers);
  Recomputed computed = model.recompute({.tokens = tokens,
                                         .positions = rows,
                                         .cache = &result.cache,
                                         .filter = narrowing.active() ? &narrowing : nullptr});
  result.logits.assign(computed.logits.begin(), computed.logits.end());
  record.prefill_s = computing.seconds();

  record.recomputed = std::move(computed.positions);
  record.recomputed.erase(std::ranges::lower_bound(record.recomputed, prompt.question), record.recomputed.end());
  record.reused = n - computed.rows.back();
  const auto computed_rows = std::accumulate(computed.rows.begin(), computed.rows.end(), int64_t{0});
  record.recompute_share = static_cast<double>(computed_rows) / static_cast<double>(n * model.config().layers);
  record.total_s = total.seconds();
  return result;
}

}  // namespace kvarena
