#include "harness/engine/draft/cache_draft.h"
#include "harness/engine/draft/draft_source.h"
#include "harness/engine/draft/exit_draft.h"
#include "harness/engine/draft/head_draft.h"
#include "harness/engine/draft/model_draft.h"
#include "harness/engine/draft/text_draft.h"
#include "harness/engine/draft/view_draft.h"

namespace kvarena {
namespace {

/// Tokens that a rule proposes; it holds nothing.
class RuleDraft final : public DraftSource {
 public:
  explicit RuleDraft(TextRule rule) : rule_(std::move(rule)) {}

  void begin(const DraftRound& round) override {
    drafts_.clear();
    for (const int32_t token : rule_.propose(round.history, round.limit)) drafts_.push_back({.token = token});
  }
  void commit(const Verified& /*verified*/) override {}

 private:
  TextRule rule_;
};

/// Makes the source of each kind of drafter.
struct Maker {
  using Made = std::unique_ptr<DraftSource>;

  Transformer& model;
  const Prefill& prompt;
  const DraftSampler& sampler;
  const DraftContext& session;

  Made operator()(const CompressedCopy& copy) const {
    return std::make_unique<CacheDraft>(model, prompt, copy, sampler, session);
  }
  Made operator()(const CacheView& view) const { return std::make_unique<ViewDraft>(prompt, view, sampler, session); }
  Made operator()(const FirstLayers& first) const {
    return std::make_unique<ExitDraft>(model, first, sampler, *session.full);
  }
  /// The checkpoint is read once for all sessions of the target.
  Made operator()(const OtherCheckpoint& other) const {
    std::shared_ptr<SharedModel> drafter = model.helper(other.path);
    const bool alike = session.tokenizer == nullptr || drafter->tokenizer == nullptr ||
                       same_vocabulary(*session.tokenizer, *drafter->tokenizer);
    if (!alike) return std::make_unique<TextDraft>(std::move(drafter), *session.tokenizer, prompt);
    return std::make_unique<ModelDraft>(model, std::move(drafter), prompt, sampler);
  }
  Made operator()(const DraftingHead& head) const { return std::make_unique<HeadDraft>(model, prompt, head, sampler); }
  Made operator()(const TextRule& rule) const { return std::make_unique<RuleDraft>(rule); }
};

}  // namespace

std::unique_ptr<DraftSource> make_draft_source(Transformer& model, const Prefill& prompt, const Verifier& verifier,
                                               const DraftSampler& sampler, const DraftContext& session) {
  return std::visit(Maker{model, prompt, sampler, session}, verifier.drafter());
}

}  // namespace kvarena
