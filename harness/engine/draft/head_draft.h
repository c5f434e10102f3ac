#pragma once
// Speculative decoding with a drafting head on the target's own features. Li et al. 2025, arXiv:2503.01840,
// section 3.1.

#include "harness/engine/draft/draft_source.h"
#include "harness/engine/draft/draft_tree.h"
#include "harness/method/draft_head.h"
#include "harness/method/tapped_features.h"

namespace kvarena {

/// The head reads the residual stream of every token that the target has been through, and then its own output. Its one
/// layer keeps a cache of its own, of committed tokens between rounds.
///
/// Drafts are a chain or a tree (draft_tree.h); models with sliding windows are drafted for by chains.
class HeadDraft final : public DraftSource {
 public:
  /// Reads the head's weights. Throws UserError when they are absent or of another model.
  HeadDraft(const Transformer& model, const Prefill& prompt, const DraftingHead& head, DraftSampler sampler);

  void begin(const DraftRound& round) override;
  [[nodiscard]] AttentionHooks* verification_hooks() override { return &taps_; }
  void commit(const Verified& verified) override;
  [[nodiscard]] int64_t resident_bytes() const override { return cache_.bytes() + pending_bytes(); }
  [[nodiscard]] int64_t peak_bytes() const override { return cache_.ledger->peak(Tier::device) + pending_bytes(); }

 private:
  /// Keeps what the head reads of a pass.
  struct Taps final : AttentionHooks {
    Taps(int64_t layers, const LedgerPtr& ledger) : features(layers, ledger) {}
    [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }
    void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
      features.see(layer, rows, count, hidden_size);
    }
    TappedFeatures features;
  };

  [[nodiscard]] int64_t pending_bytes() const { return static_cast<int64_t>(pending_.capacity() * sizeof(float)); }
  /// Feeds the tokens that were committed since the last round, and returns the head's row behind the last.
  std::vector<float> catch_up(std::span<const int32_t> history);
  void run(std::span<const int32_t> tokens, const float* hidden, float* out);
  /// The head's logits as logits over the model's vocabulary: tokens that it does not know have none.
  std::vector<float> predict(const std::vector<float>& out) const;
  void draft_chain(std::vector<float> row, const DraftRound& round);
  void draft_tree(std::span<const float> row, const TreeShape& shape);

  std::shared_ptr<const ModelFacts> facts_;
  std::shared_ptr<const DraftHead> head_;
  DraftSampler sampler_;
  int64_t beams_;  // 1: chains
  int64_t tree_tokens_;
  KvCache cache_;               // of the head's layer
  std::vector<float> pending_;  // g of committed tokens that are not in cache_, [count, hidden_size]
  Taps taps_;
};

}  // namespace kvarena
