#pragma once
// Speculative decoding with a second checkpoint. Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
// arXiv:2302.01318.

#include "harness/engine/draft/draft_source.h"
#include "harness/model/shared_model.h"

namespace kvarena {

/// A smaller model of the target's vocabulary drafts on a full cache of its own. Its weights are shared by all sessions
/// that name the same file.
class ModelDraft final : public DraftSource {
 public:
  /// Reads the prompt. Throws UserError when the vocabularies cannot be the same.
  ModelDraft(const Transformer& target, std::shared_ptr<SharedModel> drafter, const Prefill& prompt,
             DraftSampler sampler);

  void begin(const DraftRound& round) override;
  void commit(const Verified& verified) override;
  [[nodiscard]] int64_t resident_bytes() const override { return cache_.bytes(); }
  [[nodiscard]] int64_t peak_bytes() const override { return cache_.ledger->peak(Tier::device); }

 private:
  /// Feeds `tokens` and returns the logits after the last, cut to the target's vocabulary.
  std::span<const float> feed(std::span<const int32_t> tokens);

  std::shared_ptr<SharedModel> shared_;
  Transformer* model_;  // shared_'s
  DraftSampler sampler_;
  KvCache cache_;
  size_t vocab_ = 0;  // ids that both models know
};

}  // namespace kvarena
