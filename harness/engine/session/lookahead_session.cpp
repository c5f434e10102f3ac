#include "harness/engine/session/lookahead_session.h"

#include "harness/cache/sliding_window.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/request_meter.h"
#include "harness/engine/session/selection_meter.h"

namespace kvarena {

void LookaheadSession::Hooks::after_observe(LayerCache& cache) {
  if (guesses > 0) cache.tail().truncate(cache.tail().entries(0) - guesses);
}

LookaheadSession::LookaheadSession(Transformer& model, const Prefill& prompt, const Method& method,
                                   SessionOptions options)
    : model_config_(&model.config()),
      cache_([&] {
        PromptState state = state_after_prompt(model, prompt, method, activity);
        compress_seconds = state.seconds;
        return std::move(state.cache);
      }()),
      model_facts_(prompt.model),
      hooks_(method, activity, static_cast<int64_t>(prompt.tokens.size()), model_facts_.get()),
      watched_(options.meter != nullptr ? &options.meter->watch(hooks_) : &hooks_),
      emitter_(std::move(options), static_cast<int64_t>(prompt.tokens.size())) {
  resident_bytes = cache_.bytes();
  sliding_bytes = kvarena::sliding_bytes(cache_);
  note_bytes(*this, cache_);
  traffic_so_far_ = activity.traffic;
  if (emitter_.unasked().empty()) emitter_.emit(*this, prompt.logits);
}

SequencePass LookaheadSession::next_pass() {
  release_unseen(cache_);
  const std::span<const int32_t> question = emitter_.unasked();
  fed_ = {question.empty() ? tokens.back() : question.front()};
  const bool room = cache_.length + 2 <= model_config_->max_position;
  if (guess_ && room) fed_.push_back(question.size() > 1 ? question[1] : *guess_);
  cache_.hold_states();
  hooks_.guesses = guess_ ? static_cast<int64_t>(fed_.size()) - 1 : 1;
  // The first pass prepares for a step and is none.
  return {.tokens = fed_, .cache = &cache_, .hooks = guess_ ? watched_ : &hooks_, .logits = LogitsRows::all};
}

void LookaheadSession::consume(std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(model_config_->vocab_size);
  cache_.length -= hooks_.guesses;
  cache_.follow_length();
  const auto position = static_cast<uint64_t>(cache_.length) + 1;
  const bool preparing = !guess_;
  guess_ = sample(logits.last(vocab), emitter_.sampling(), position);
  if (preparing) resident_bytes = cache_.bytes();  // with what the first step attends to
  if (!preparing && !emitter_.unasked().empty()) emitter_.ask(1);
  if (!preparing && emitter_.unasked().empty()) emitter_.emit(*this, logits.first(vocab));
  note_pass(*this, cache_, traffic_so_far_);
}

}  // namespace kvarena
