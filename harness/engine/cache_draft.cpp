#include "harness/engine/cache_draft.h"

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/engine/compressed_cache.h"
#include "harness/engine/selection_meter.h"
#include "harness/method/registry.h"

namespace kvarena {

CacheDraft::CacheDraft(Transformer& model, const Prefill& prompt, const Verifier& verifier, DraftSampler sampler,
                       const DraftingFor& session)
    : method_(make_method(nlohmann::json::parse(verifier.drafter()), "drafter")),
      sampler_(sampler),
      activity_(session.activity),
      prompt_tokens_(static_cast<int64_t>(prompt.tokens.size())),
      model_facts_(prompt.model),
      committed_(state_after_prompt(model, prompt, *method_, *activity_).cache),
      hooks_(*method_, *activity_, model.config().layers, prompt_tokens_, model_facts_.get()),
      meter_(session.meter) {
  if (meter_ != nullptr) meter_->watch(hooks_);
}

void CacheDraft::begin(const DraftRound& round) {
  drafts_.clear();
  fed_ = round.history.back();
  limit_ = round.limit;
  scratch_ = committed_.clone();
}

SequencePass CacheDraft::next_pass() {
  AttentionHooks* const hooks = meter_ != nullptr ? static_cast<AttentionHooks*>(meter_) : &hooks_;
  return {.tokens = {&fed_, 1}, .cache = &*scratch_, .hooks = hooks, .logits = LogitsRows::last};
}

void CacheDraft::consume(std::span<const float> logits) {
  if (!hooks_.failure().empty()) throw UserError(hooks_.failure());
  drafts_.push_back(sampler_.draw(logits, scratch_->length));
  fed_ = drafts_.back().token;
}

void CacheDraft::commit(const Verified& verified) {
  RequestContext request{
      .cache = committed_, .activity = *activity_, .prompt_tokens = prompt_tokens_, .model = model_facts_.get()};
  method_->read_tokens(request, verified.tokens);
  const auto count = static_cast<int64_t>(verified.tokens.size());
  const auto layers = static_cast<int64_t>(verified.full.layers.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    LayerCache& cache = committed_.layers[layer];
    // The full cache is dense: its entry index is the position.
    cache.tail().append_entries(verified.full.layers[layer].tail(), verified.before, count);
    LayerContext context{.layer = layer,
                         .layers = layers,
                         .cache = cache,
                         .activity = *activity_,
                         .prompt_tokens = prompt_tokens_,
                         .model = model_facts_.get(),
                         .request = &committed_};
    method_->settle(context);
  }
  committed_.length += count;
  if (meter_ != nullptr) meter_->follow(verified.full, verified.before, count);
}

int64_t CacheDraft::peak_bytes() const {
  return committed_.bytes() + (scratch_ ? scratch_->ledger->peak(Tier::device) : 0);
}

}  // namespace kvarena
