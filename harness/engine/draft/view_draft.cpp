#include "harness/engine/draft/view_draft.h"

#include "harness/core/error.h"
#include "harness/engine/session/selection_meter.h"

namespace kvarena {

ViewDraft::ViewDraft(const Transformer& model, const Prefill& prompt, const CacheView& view, DraftSampler sampler,
                     const DraftContext& session)
    : method_(view.method),
      sampler_(sampler),
      full_(session.full),
      activity_(session.activity),
      prompt_tokens_(static_cast<int64_t>(prompt.tokens.size())),
      model_facts_(prompt.model),
      hooks_(*method_, *activity_, model.config().layers, prompt_tokens_, model_facts_.get()),
      watcher_(*this),
      // A cache of codes has no keys to measure by, and leaves nothing out.
      meter_(session.compressed ? nullptr : session.meter) {
  if (meter_ != nullptr) meter_->watch(hooks_);
  if (session.compressed) return;  // that cache is this method's already
  std::vector<LayerContext> contexts;
  for (int64_t layer = 0; layer < model.config().layers; ++layer) {
    contexts.push_back({.layer = layer,
                        .layers = model.config().layers,
                        .cache = full_->layers[layer],
                        .activity = *activity_,
                        .prompt_tokens = prompt_tokens_,
                        .model = model_facts_.get(),
                        .prompt = prompt.tokens,
                        .request = full_});
  }
  method_->compress_all(contexts, prompt.observations);
}

void ViewDraft::begin(const DraftRound& round) {
  drafts_.clear();
  fed_ = round.history.back();
  limit_ = round.limit;
  committed_ = full_->length;
}

SequencePass ViewDraft::next_pass() {
  AttentionHooks* const hooks = meter_ != nullptr ? static_cast<AttentionHooks*>(meter_) : &hooks_;
  return {.tokens = {&fed_, 1}, .cache = full_, .hooks = hooks, .logits = LogitsRows::last};
}

void ViewDraft::consume(std::span<const float> logits) {
  drafts_.push_back(sampler_.draw(logits, full_->length));
  fed_ = drafts_.back().token;
  if (!wants_pass()) full_->truncate(committed_);
}

void ViewDraft::commit(const Verified& verified) {
  if (meter_ == nullptr) return;
  meter_->follow(verified.full, verified.before, static_cast<int64_t>(verified.tokens.size()));
}

void ViewDraft::Watcher::after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries,
                                         const float* lse) {
  LayerContext context{.layer = layer,
                       .layers = static_cast<int64_t>(owner_->full_->layers.size()),
                       .cache = cache,
                       .activity = *owner_->activity_,
                       .prompt_tokens = owner_->prompt_tokens_,
                       .model = owner_->model_facts_.get(),
                       .request = owner_->full_};
  owner_->method_->observe(context, queries, lse);
}

}  // namespace kvarena
