#pragma once
// Drafts of the target on a compressed cache that lay in a store, away from the model that verifies.

#include "harness/engine/draft/draft_source.h"

namespace kvarena {

/// Nothing but tokens comes back from a verification: the drafter keeps the entries that it computed itself of what was
/// accepted, and feeds what it has no entries of before it drafts on. The cache takes entries as they come: it is one
/// that can be stored (stored_cache.h).
class StoredDraft final : public DraftSource {
 public:
  /// `cache` holds the beginning of the history.
  StoredDraft(KvCache cache, const DraftSampler& sampler) : cache_(std::move(cache)), sampler_(sampler) {}

  void begin(const DraftRound& round) override;
  [[nodiscard]] bool wants_pass() const override { return static_cast<int64_t>(drafts_.size()) < limit_; }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  void end_drafting() override { limit_ = 0; }
  void commit(const Verified& verified) override;
  [[nodiscard]] int64_t resident_bytes() const override { return cache_.bytes(); }
  [[nodiscard]] int64_t peak_bytes() const override { return cache_.ledger->peak(Tier::device); }

 private:
  KvCache cache_;
  DraftSampler sampler_;
  std::vector<int32_t> fed_;  // tokens of the pass under way
  int64_t limit_ = 0;         // of this round's drafts
};

}  // namespace kvarena
