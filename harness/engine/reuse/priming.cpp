#include "harness/engine/reuse/priming.h"

#include <algorithm>

#include "harness/engine/model_facts.h"
#include "harness/engine/reuse/cartridge.h"
#include "harness/model/pass_checks.h"

namespace kvarena {
namespace {

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

}  // namespace

ReusePrompt reuse_prompt_of(std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser) {
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  ReusePrompt prompt{
      .tokens = tokens, .parts = {}, .question = std::clamp<int64_t>(layout.question.value_or(last), 0, last)};
  prompt.parts = cut_parts(layout.prefix, prompt.question, reuser.chunk());
  return prompt;
}

std::span<const int32_t> tokens_of(const ReusePrompt& prompt, const PromptPart& part) {
  return prompt.tokens.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.end - part.begin));
}

Priming::Priming(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser,
                 ReuseMemory& memory)
    : model_(&model), reuser_(&reuser), memory_(&memory) {
  require_entries(model.config(), "prompt", "reuse of entries");
  const auto speculative = reuser.speculative();
  if (speculative && !speculative->path.empty()) (void)model.helper(speculative->path);
  const ReusePrompt prompt = reuse_prompt_of(tokens, layout, reuser);
  switch (reuser.source()) {
    case ReuseSource::nothing: break;
    case ReuseSource::prefix: parts_ = {shared_beginning(prompt, layout.prefix)}; break;
    case ReuseSource::chunks:
      for (const PromptPart& part : prompt.parts) parts_.push_back(tokens_of(prompt, part));
      break;
    case ReuseSource::artifact: hold_artifact(); break;
  }
  advance();
}

void Priming::hold_artifact() {
  const std::string key = cartridge_key(*model_, *reuser_);
  holds_.push_back(memory_->chunks->hold(key));
  if (holds_.back() != nullptr) return;
  const auto facts = memory_->facts ? memory_->facts : model_facts(*model_);
  memory_->chunks->put(key, read_cartridge(*model_, *reuser_, *facts));
  holds_.push_back(memory_->chunks->hold(key));
}

bool Priming::held(std::span<const int32_t> part) {
  if (reuser_->source() == ReuseSource::prefix) {
    const auto whole = std::ssize(part) / reuser_->block() * reuser_->block();
    return memory_->prefixes->match(reuser_->block(), part) >= whole;
  }
  holds_.push_back(memory_->chunks->hold(chunk_key(*model_, part)));
  return holds_.back() != nullptr;
}

void Priming::keep(std::span<const int32_t> part, KvCache cache) {
  if (reuser_->source() == ReuseSource::prefix) return memory_->prefixes->insert(reuser_->block(), part, cache);
  cache.mirror.reset();  // a device's copy, which nobody would use again
  const std::string key = chunk_key(*model_, part);
  memory_->chunks->put(key, std::make_shared<const KvCache>(std::move(cache)));
  holds_.push_back(memory_->chunks->hold(key));
}

void Priming::advance() {
  run_.reset();
  while (next_ < parts_.size() && held(parts_[next_])) ++next_;
  if (next_ < parts_.size()) run_.emplace(*model_, parts_[next_++]);
}

SequencePass Priming::next_pass() {
  run_->set_chunk(chunk_);
  return run_->next_pass();
}

void Priming::consume(std::span<const float> /*logits*/) {
  if (run_->remaining() > 0) return;
  keep(parts_[next_ - 1], run_->take());
  advance();
}

void prime(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser,
           ReuseMemory& memory) {
  Priming priming(model, tokens, layout, reuser, memory);
  while (!priming.done()) {
    const SequencePass pass = priming.next_pass();
    priming.consume(model.forward({&pass, 1}));
  }
}

}  // namespace kvarena
