#pragma once
// Self-speculation: the target drafts on a compressed copy of its own cache.

#include <optional>

#include "harness/engine/draft_source.h"
#include "harness/engine/observe.h"

namespace kvarena {

/// A round drafts on a copy of the committed compressed cache and throws it away; what was accepted comes back as the
/// verifier's own entries, so drafted ones never stay anywhere.
class CacheDraft final : public DraftSource {
 public:
  CacheDraft(Transformer& model, const Prefill& prompt, const Verifier& verifier, DraftSampler sampler,
             const DraftingFor& session);

  void begin(const DraftRound& round) override;
  [[nodiscard]] bool wants_pass() const override { return static_cast<int64_t>(drafts_.size()) < limit_; }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  void commit(const Verified& verified) override;
  [[nodiscard]] int64_t resident_bytes() const override { return committed_.bytes(); }
  [[nodiscard]] int64_t held_bytes() const override { return committed_.bytes() + (scratch_ ? scratch_->bytes() : 0); }
  [[nodiscard]] int64_t peak_bytes() const override;

 private:
  std::unique_ptr<Method> method_;
  DraftSampler sampler_;
  Activity* activity_;
  int64_t prompt_tokens_;
  std::shared_ptr<const ModelFacts> model_facts_;
  KvCache committed_;               // at the committed length
  std::optional<KvCache> scratch_;  // this round's copy
  MethodHooks hooks_;
  SelectionMeter* meter_;  // null when nothing is measured
  int32_t fed_ = 0;        // token of the pass under way
  int64_t limit_ = 0;
};

}  // namespace kvarena
