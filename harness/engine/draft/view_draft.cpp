#include "harness/engine/draft/view_draft.h"

#include "harness/engine/session/acted_layers.h"
#include "harness/engine/session/selection_meter.h"

namespace kvarena {

ViewDraft::ViewDraft(const Prefill& prompt, const CacheView& view, DraftSampler sampler, const DraftContext& session)
    : method_(view.method),
      sampler_(sampler),
      full_(session.full),
      activity_(session.activity),
      prompt_tokens_(static_cast<int64_t>(prompt.tokens.size())),
      model_facts_(prompt.model),
      acted_(*method_, *full_),
      hooks_(*method_, *activity_, prompt_tokens_, model_facts_.get()),
      watcher_(*this),
      // A cache of codes has no keys to measure by, and leaves nothing out.
      meter_(session.compressed ? nullptr : session.meter) {
  if (meter_ != nullptr) meter_->watch(hooks_);
  if (session.compressed) return;  // that cache is this method's already
  compress_layers(*method_, *full_, prompt, *activity_);
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

void ViewDraft::Watcher::after_attention(int64_t layer, LayerCache& /*cache*/, const LayerQueries& queries,
                                         const float* lse) {
  if (!owner_->acted_.holds(layer)) return;
  LayerContext context = owner_->acted_.context(*owner_->full_, layer, owner_->prompt_tokens_,
                                                owner_->model_facts_.get(), *owner_->activity_);
  owner_->method_->observe(context, queries, lse);
}

}  // namespace kvarena
