#pragma once
// Self-speculation: the target drafts on a compressed copy of its own cache.

#include <optional>
#include <vector>

#include "harness/cache/checkpoint.h"
#include "harness/engine/draft/draft_source.h"
#include "harness/engine/draft/recorded_passes.h"
#include "harness/engine/session/observe.h"

namespace kvarena {

/// Where the method leaves later entries alone, a round's drafts are dropped and accepted tokens come back as the
/// verifier's own entries.
///
/// Where it acts on them (it evicts, packs, remembers attention), the cache is that of plain decoding under the method
/// of the tokens accepted so far, bit for bit: their entries are those that drafting computed, and the method saw each
/// of them in a pass of its own. A round that is cut gives the cache of its beginning back and shows the method the
/// accepted tokens' passes again, without the model (recorded_passes.h). The tokens that drafting has not fed, the last
/// draft of a round that was accepted whole and a question, each take a pass before the next round drafts.
///
/// With an auxiliary source (Yao et al. 2026, arXiv:2605.17613, Appendix C) each pass over the copy verifies what that
/// source drafted, keeps the drafts that the compressed cache agrees with and its own next token, and takes the entries
/// of the others back before the method packs or evicts. Tokens of one pass are then observed together.
class CacheDraft final : public DraftSource {
 public:
  CacheDraft(Transformer& model, const Prefill& prompt, const CompressedCopy& copy, DraftSampler sampler,
             const DraftContext& session);
  /// `cache` holds the beginning of the history and takes entries as they come, as one from a store does
  /// (stored_cache.h). Nothing but tokens comes back to it from a verification: it keeps the entries of its own drafts.
  CacheDraft(KvCache cache, const DraftSampler& sampler);

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
    return cache_.bytes() + (aux_ != nullptr ? aux_->resident_bytes() : 0);
  }
  [[nodiscard]] int64_t sliding_bytes() const override;
  [[nodiscard]] bool simulated_bytes() const override;
  [[nodiscard]] int64_t held_bytes() const override;
  [[nodiscard]] int64_t peak_bytes() const override;
  /// A method that acts on the drafts may change the whole cache in a round.
  [[nodiscard]] int64_t round_bytes(int64_t tokens) const override;

  /// The compressed cache; between rounds of the tokens that were accepted, but for those not fed yet.
  [[nodiscard]] const KvCache& cache() const { return cache_; }

 private:
  /// Hooks of a pass whose entries may be taken back: the method selects, and its observations are kept until it is
  /// known which rows stay. The auxiliary source watches too.
  class InnerHooks final : public ForwardingHooks {
   public:
    explicit InnerHooks(CacheDraft& owner) : owner_(&owner) {}
    [[nodiscard]] HookAccess reach() const override;
    void before_pass(KvCache& cache, std::span<const int32_t> tokens) override;
    void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;
    void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override;

   private:
    CacheDraft* owner_;
  };

  /// Chooses the tokens of the next pass.
  void prepare();
  /// Asks the auxiliary source for drafts that continue the round so far.
  void begin_inner();
  void consume_inner(std::span<const float> logits);
  /// Keeps the first `kept` entries of the pass under way and drops its others: the method observes, packs and evicts
  /// as if these had never been.
  void keep_inner(int64_t kept);
  /// Draws the draft at `position`.
  void draw(std::span<const float> logits, int64_t position);
  void drop_newest(int64_t tokens);
  /// Whether accepted tokens' entries are the verifier's.
  [[nodiscard]] bool takes_verified() const { return hooks_ && !online_; }
  void append(const Verified& verified);
  /// Takes the round back and gives the method its passes again, up to `length` tokens.
  void replay(int64_t length);

  Nested<Method> method_;  // absent of a cache that takes entries as they come
  DraftSampler sampler_;
  Activity* activity_ = nullptr;
  Activity again_;  // of what the method does a second time, which nobody counts
  int64_t prompt_tokens_ = 0;
  std::shared_ptr<const ModelFacts> model_facts_;
  KvCache cache_;
  std::optional<CacheCheckpoint> before_;  // the round's beginning, where the method acts on its drafts
  bool online_ = false;                    // whether the method acts on later entries
  std::optional<MethodHooks> hooks_, replay_hooks_;
  RecordedPasses recorded_;            // of the round's drafts, where the method acts on them
  SelectionMeter* meter_ = nullptr;    // null when nothing is measured
  AttentionHooks* watched_ = nullptr;  // hooks of passes that draft: the method's, measured and recorded
  std::vector<int32_t> history_;       // of the round, with what was drafted in it
  std::vector<int32_t> fed_;           // tokens of the pass under way
  bool drafts_next_ = false;           // whether that pass drafts; else it catches up
  int64_t limit_ = 0;
  int64_t most_passes_ = 0;  // of this round
  int64_t passes_ = 0;       // so far
  Nested<Method> aux_method_;
  std::unique_ptr<DraftSource> aux_;  // null: each pass drafts one token
  InnerHooks inner_hooks_;
};

}  // namespace kvarena
