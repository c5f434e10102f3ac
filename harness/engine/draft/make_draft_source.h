#pragma once
// From a verifier's drafter to the draft source of one session.

#include "harness/engine/draft/draft_source.h"

namespace kvarena {

/// The source of `verifier`'s drafts at the end of the prompt. The verifier must outlive it. Throws UserError where the
/// drafter's weights are absent or of another model.
[[nodiscard]] std::unique_ptr<DraftSource> make_draft_source(Transformer& model, const Prefill& prompt,
                                                             const Verifier& verifier, const DraftSampler& sampler,
                                                             const DraftContext& session);

}  // namespace kvarena
