#include "harness/engine/draft/draft_source.h"

#include "harness/core/home.h"
#include "harness/engine/draft/cache_draft.h"
#include "harness/engine/draft/exit_draft.h"
#include "harness/engine/draft/head_draft.h"
#include "harness/engine/draft/model_draft.h"
#include "harness/engine/draft/text_draft.h"
#include "harness/engine/draft/view_draft.h"

namespace kvarena {
namespace {

/// Tokens that a rule of the verifier proposes; it holds nothing.
class ProposedDraft final : public DraftSource {
 public:
  explicit ProposedDraft(const Verifier& verifier) : verifier_(&verifier) {}

  void begin(const DraftRound& round) override {
    drafts_.clear();
    for (const int32_t token : verifier_->propose(round.history, round.limit)) drafts_.push_back({.token = token});
  }
  void commit(const Verified& /*verified*/) override {}

 private:
  const Verifier* verifier_;
};

/// The checkpoint is read once for all sessions alive.
std::unique_ptr<DraftSource> draft_by_model(const Transformer& target, const Prefill& prompt, const Verifier& verifier,
                                            const DraftSampler& sampler, const Tokenizer* tokenizer) {
  std::shared_ptr<SharedModel> drafter = shared_model(find_model(verifier.draft_model()), target.options());
  const bool alike =
      tokenizer == nullptr || drafter->tokenizer == nullptr || same_vocabulary(*tokenizer, *drafter->tokenizer);
  if (!alike) return std::make_unique<TextDraft>(std::move(drafter), *tokenizer, prompt);
  return std::make_unique<ModelDraft>(target, std::move(drafter), prompt, sampler);
}

}  // namespace

Draft DraftSampler::draw(std::span<const float> logits, int64_t position) const {
  const auto index = static_cast<uint64_t>(position);
  if (rejects()) return sample_draft(logits, settings_, index);
  return {.token = sample(logits, mode_ == DraftSampling::coupled ? settings_ : SamplingSettings{}, index)};
}

std::unique_ptr<DraftSource> make_draft_source(Transformer& model, const Prefill& prompt, const Verifier& verifier,
                                               const DraftSampler& sampler, const DraftContext& session) {
  if (!verifier.drafter().empty()) return std::make_unique<CacheDraft>(model, prompt, verifier, sampler, session);
  if (!verifier.draft_view().empty()) return std::make_unique<ViewDraft>(model, prompt, verifier, sampler, session);
  if (!verifier.draft_model().empty()) return draft_by_model(model, prompt, verifier, sampler, session.tokenizer);
  if (verifier.draft_head()) return std::make_unique<HeadDraft>(model, prompt, verifier, sampler);
  if (verifier.draft_layers() > 0) return std::make_unique<ExitDraft>(model, verifier, sampler, *session.full);
  return std::make_unique<ProposedDraft>(verifier);
}

}  // namespace kvarena
