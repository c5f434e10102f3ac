#include "harness/engine/draft/stored_draft.h"

#include <algorithm>

#include "harness/engine/session/compressed_cache.h"

namespace kvarena {

void StoredDraft::begin(const DraftRound& round) {
  drafts_.clear();
  limit_ = std::min(round.limit, round.passes);
  if (limit_ == 0) return;
  const auto unseen = round.history.subspan(static_cast<size_t>(cache_.length));
  fed_.assign(unseen.begin(), unseen.end());
}

SequencePass StoredDraft::next_pass() {
  return {.tokens = fed_, .cache = &cache_, .hooks = nullptr, .logits = LogitsRows::last};
}

void StoredDraft::consume(std::span<const float> logits) {
  drafts_.push_back(sampler_.draw(logits, cache_.length));
  fed_ = {drafts_.back().token};
}

void StoredDraft::commit(const Verified& verified) {
  const int64_t accepted = verified.before + static_cast<int64_t>(verified.tokens.size());
  const int64_t rejected = cache_.length - accepted;
  if (rejected <= 0) return;  // the last draft has no entries here
  for (LayerCache& layer : cache_.layers) drop_newest(layer, rejected);
  cache_.length = accepted;
}

}  // namespace kvarena
