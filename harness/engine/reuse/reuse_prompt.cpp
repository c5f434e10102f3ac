#include "harness/engine/reuse/reuse_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
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

/// Fills `cache` with what the memory holds. With `upload` each chunk goes on to the model's device, if it has one.
void load(Transformer& model, const ReusePrompt& prompt, const Reuser& reuser, ReuseMemory& memory, bool upload,
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
        if (upload) model.upload(cache, std::ssize(prompt.tokens) - cache.length);
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
  const auto speculative = reuser.speculative();
  if (speculative && !speculative->path.empty()) (void)model.helper(speculative->path);
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
        if (!memory.chunks->contains(key)) memory.chunks->put(key, compute_chunk(model, own));
      }
      return;
  }
}

ReuseRun::ReuseRun(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout,
                   const Reuser& reuser, ReuseMemory& memory)
    : model_(&model),
      reuser_(&reuser),
      prompt_(reuse_prompt_of(tokens, layout, reuser)),
      result_{.cache = model.make_cache(), .logits = {}, .record = {}} {
  const Clock total;
  const auto n = std::ssize(tokens);
  const bool chunks = reuser.source() == ReuseSource::chunks;
  if (chunks) require_recoverable(model, n);
  ReuseRecord& record = result_.record;
  result_.cache.prompt_length = n;

  const auto speculative = reuser.speculative();
  const bool reads_itself = speculative && speculative->path.empty();  // in passes, which uploads must not meet
  std::future<void> loading = std::async(speculative ? std::launch::async : std::launch::deferred, [&] {
    const Clock clock;
    load(model, prompt_, reuser, memory, /*upload=*/!reads_itself, result_.cache);
    record.load_s = clock.seconds();
  });
  Speculation speculation;
  if (speculative) {
    const Clock clock;
    speculation = speculate(model, tokens, layout, *speculative);
    record.score_s = clock.seconds();
    prompt_.speculation = &speculation;
  }
  const Clock choosing;
  if (chunks) rows_ = chosen(reuser, prompt_);
  record.align_s = choosing.seconds();
  prompt_.speculation = nullptr;
  loading.get();
  record.loaded_bytes = result_.cache.bytes();
  for (int64_t position = result_.cache.length; position < n; ++position)
    rows_.push_back(static_cast<int32_t>(position));
  record.total_s = total.seconds();
}

void ReuseRun::compute(int64_t most) {
  const Clock clock;
  Narrowing narrowing(*reuser_, prompt_.question, model_->config().layers);
  const int64_t count = narrowing.active() ? remaining() : std::min(most, remaining());
  const Recomputed computed = model_->recompute({.tokens = prompt_.tokens,
                                                 .positions = std::span(rows_).subspan(done_, count),
                                                 .cache = &result_.cache,
                                                 .filter = narrowing.active() ? &narrowing : nullptr});
  done_ += count;
  result_.logits.assign(computed.logits.begin(), computed.logits.end());
  computed_ += std::accumulate(computed.rows.begin(), computed.rows.end(), int64_t{0});
  last_layer_ += computed.rows.back();
  ReuseRecord& record = result_.record;
  std::ranges::copy_if(computed.positions, std::back_inserter(record.recomputed),
                       [&](int32_t position) { return position < prompt_.question; });
  record.prefill_s += clock.seconds();
  record.total_s += clock.seconds();
}

ReusedPrompt ReuseRun::finish() {
  KVARENA_ASSERT(remaining() == 0, fmt::format("{} tokens remain", remaining()));
  const int64_t n = std::ssize(prompt_.tokens);
  result_.record.reused = n - last_layer_;
  result_.record.recompute_share = static_cast<double>(computed_) / static_cast<double>(n * model_->config().layers);
  return std::move(result_);
}

ReusedPrompt reuse_prompt(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout,
                          const Reuser& reuser, ReuseMemory& memory) {
  ReuseRun run(model, tokens, layout, reuser, memory);
  run.compute(run.remaining());
  return run.finish();
}

}  // namespace kvarena
