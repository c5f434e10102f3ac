#pragma once
// Self-speculation: the target drafts on a compressed copy of its own cache.

#include <optional>
#include <vector>

#include "harness/engine/draft/draft_source.h"
#include "harness/engine/session/forwarding_hooks.h"
#include "harness/engine/session/observe.h"

namespace kvarena {

/// A round drafts on a copy of the committed compressed cache and throws it away; accepted tokens come back as the
/// verifier's own entries, so drafted ones never stay.
///
/// With an auxiliary source (Yao et al. 2026, arXiv:2605.17613, Appendix C) each pass over the copy verifies what that
/// source drafted, keeps the drafts that the compressed cache agrees with and its own next token, and takes the entries
/// of the others back before the method packs or evicts.
class CacheDraft final : public DraftSource {
 public:
  CacheDraft(Transformer& model, const Prefill& prompt, const CompressedCopy& copy, DraftSampler sampler,
             const DraftContext& session);

  void begin(const DraftRound& round) override;
  [[nodiscard]] bool wants_pass() const override {
    return passes_ < most_passes_ && static_cast<int64_t>(drafts_.size()) < limit_;
  }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  [[nodiscard]] AttentionHooks* verification_hooks() override {
    return aux_ != nullptr ? aux_->verification_hooks() : nullptr;
  }
  void end_drafting() override { most_passes_ = passes_; }
  void commit(const Verified& verified) override;
  [[nodiscard]] int64_t resident_bytes() const override {
    return committed_.bytes() + (aux_ != nullptr ? aux_->resident_bytes() : 0);
  }
  [[nodiscard]] int64_t held_bytes() const override { return resident_bytes() + (scratch_ ? scratch_->bytes() : 0); }
  [[nodiscard]] int64_t peak_bytes() const override;

 private:
  /// Hooks of a pass whose entries may be taken back: the method selects, and its observations are kept until it is
  /// known which rows stay. The auxiliary source watches too.
  class InnerHooks final : public ForwardingHooks {
   public:
    /// A layer's queries, copied.
    struct Seen {
      std::vector<float> q;       // [q_len, row]
      std::vector<float> lse;     // [q_len, q_heads]
      std::vector<float> hidden;  // [q_len, hidden_size], empty when nobody asked
      int64_t row = 0;            // q_heads * head_dim
      int64_t position = 0;

      /// The first `count`.
      [[nodiscard]] LayerQueries queries(int64_t count, std::span<const int32_t> tokens) const {
        return {.q = q.data(),
                .q_len = count,
                .q_stride = row,
                .position = position,
                .hidden = hidden.empty() ? nullptr : hidden.data(),
                .tokens = tokens.data()};
      }
    };

    explicit InnerHooks(CacheDraft& owner) : ForwardingHooks(&owner.hooks_), owner_(&owner) {}
    [[nodiscard]] HookAccess reach() const override;
    void before_pass(KvCache& cache, std::span<const int32_t> tokens) override;
    void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;
    void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override;

    std::vector<Seen> seen;  // of each layer, by the newest pass

   private:
    CacheDraft* owner_;
  };

  [[nodiscard]] LayerContext context(KvCache& cache, int64_t layer) const;
  /// Asks the auxiliary source for drafts that continue the round so far.
  void begin_inner();
  void consume_inner(std::span<const float> logits);
  /// Keeps the first `kept` entries of the pass under way and drops its others: the method observes, packs and evicts
  /// as if these had never been.
  void keep_inner(int64_t kept);

  Nested<Method> method_;
  DraftSampler sampler_;
  Activity* activity_;
  int64_t prompt_tokens_;
  std::shared_ptr<const ModelFacts> model_facts_;
  KvCache committed_;               // at the committed length
  std::optional<KvCache> scratch_;  // this round's copy
  MethodHooks hooks_;
  SelectionMeter* meter_;     // null when nothing is measured
  std::vector<int32_t> fed_;  // tokens of the pass under way
  int64_t limit_ = 0;
  int64_t most_passes_ = 0;  // of this round
  int64_t hidden_size_;      // of the model
  int64_t passes_ = 0;       // so far
  Nested<Method> aux_method_;
  std::unique_ptr<DraftSource> aux_;  // null: each pass drafts one token
  InnerHooks inner_hooks_;
  std::vector<int32_t> history_;  // of the round, with what was drafted in it; only for aux_
};

}  // namespace kvarena
