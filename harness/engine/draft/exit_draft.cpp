#include "harness/engine/draft/exit_draft.h"

#include <algorithm>
#include <cmath>

namespace kvarena {

ExitDraft::ExitDraft(const Transformer& model, const FirstLayers& first, DraftSampler sampler, KvCache& full)
    : sampler_(sampler), full_(&full) {
  const int64_t all = model.config().layers;
  const auto asked = static_cast<int64_t>(std::llround(first.share * static_cast<double>(all)));
  layers_ = std::clamp<int64_t>(asked, 1, all);
}

void ExitDraft::begin(const DraftRound& round) {
  drafts_.clear();
  fed_ = round.history.back();
  limit_ = round.limit;
  committed_ = full_->length;
}

SequencePass ExitDraft::next_pass() {
  return {.tokens = {&fed_, 1}, .cache = full_, .logits = LogitsRows::last, .exit_after = layers_};
}

void ExitDraft::consume(std::span<const float> logits) {
  drafts_.push_back(sampler_.draw(logits, full_->length));
  fed_ = drafts_.back().token;
  if (!wants_pass()) full_->truncate(committed_);
}

}  // namespace kvarena
