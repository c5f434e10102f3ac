#include "harness/engine/plain_session.h"

#include <chrono>

#include "harness/engine/compressed_cache.h"
#include "harness/engine/request_meter.h"
#include "harness/engine/selection_meter.h"

namespace kvarena {

PlainSession::PlainSession(Transformer& model, const Prefill& prompt, const Method& method, SessionOptions options)
    : cache_([&] {
        const auto start = std::chrono::steady_clock::now();
        KvCache cache = compress_prompt(prompt, method, activity);
        compress_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        return cache;
      }()),
      model_facts_(prompt.model),
      hooks_(method, activity, model.config().layers, static_cast<int64_t>(prompt.tokens.size()), model_facts_.get()),
      meter_(options.meter),
      emitter_(std::move(options), static_cast<int64_t>(prompt.tokens.size())) {
  if (meter_ != nullptr) meter_->watch(hooks_);
  resident_bytes = cache_.bytes();
  traffic_so_far_ = activity.traffic;
  emitter_.emit(*this, prompt.logits);
}

SequencePass PlainSession::next_pass() {
  AttentionHooks* const hooks = meter_ != nullptr ? static_cast<AttentionHooks*>(meter_) : &hooks_;
  return {.tokens = std::span(tokens).last(1), .cache = &cache_, .hooks = hooks, .logits = LogitsRows::last};
}

void PlainSession::consume(std::span<const float> logits) {
  if (ended_by(*this, hooks_.failure())) return;
  emitter_.emit(*this, logits);
  note_pass(*this, cache_, traffic_so_far_);
}

}  // namespace kvarena
