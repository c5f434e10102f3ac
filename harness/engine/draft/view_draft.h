#pragma once
// Self-speculation on the cache that is verified on: drafts see the part that a method shows of it.

#include "harness/engine/draft/draft_source.h"
#include "harness/engine/session/observe.h"

namespace kvarena {

/// Drafted entries go straight into the full cache, and are taken back before the verification, which writes its own.
/// The method chooses what a drafting step attends to; it sees what each verification attends to, drafts that are then
/// rejected included.
class ViewDraft final : public DraftSource {
 public:
  ViewDraft(const Prefill& prompt, const CacheView& view, DraftSampler sampler, const DraftContext& session);

  void begin(const DraftRound& round) override;
  [[nodiscard]] bool wants_pass() const override { return static_cast<int64_t>(drafts_.size()) < limit_; }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  [[nodiscard]] AttentionHooks* verification_hooks() override { return &watcher_; }
  void commit(const Verified& verified) override;

 private:
  /// Shows the method a verification, and nothing more: it chooses nothing for it and changes nothing in it.
  class Watcher final : public AttentionHooks {
   public:
    explicit Watcher(ViewDraft& owner) : owner_(&owner) {}
    [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }
    void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;

   private:
    ViewDraft* owner_;
  };

  Nested<Method> method_;
  DraftSampler sampler_;
  KvCache* full_;
  Activity* activity_;
  int64_t prompt_tokens_;
  std::shared_ptr<const ModelFacts> model_facts_;
  ActedLayers acted_;
  MethodHooks hooks_;
  Watcher watcher_;
  SelectionMeter* meter_;  // null when nothing is measured
  int64_t committed_ = 0;  // length of the full cache without drafts
  int32_t fed_ = 0;        // token of the pass under way
  int64_t limit_ = 0;
};

}  // namespace kvarena
