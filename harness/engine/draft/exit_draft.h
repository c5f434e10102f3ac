#pragma once
// Self-speculation with the target's first layers. Elhoushi et al. 2024, arXiv:2404.16710, section 3.3.

#include "harness/engine/draft/draft_source.h"

namespace kvarena {

/// Drafts leave the target early. The first layers' entries are the same for drafting and verifying, so drafts go
/// straight into the full cache and are taken back before the verification, which writes them again.
class ExitDraft final : public DraftSource {
 public:
  ExitDraft(const Transformer& model, const FirstLayers& first, DraftSampler sampler, KvCache& full);

  void begin(const DraftRound& round) override;
  [[nodiscard]] bool wants_pass() const override { return static_cast<int64_t>(drafts_.size()) < limit_; }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  void commit(const Verified& /*verified*/) override {}

 private:
  DraftSampler sampler_;
  KvCache* full_;
  int64_t layers_;
  int64_t committed_ = 0;  // length of the full cache without drafts
  int32_t fed_ = 0;        // token of the pass under way
  int64_t limit_ = 0;
};

}  // namespace kvarena
