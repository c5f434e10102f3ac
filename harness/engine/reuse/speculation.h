#pragma once
// A smaller model reads the prompt ahead of the target, so that a reuser can tell which tokens matter.

#include <stop_token>

#include "harness/engine/reuse/prompt_layout.h"
#include "harness/method/reuser.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// Notes the norms of the residual stream while a model reads a prompt by the first of its layers.
class ResidualNorms final : public AttentionHooks {
 public:
  /// For `tokens` tokens and a share of the layers, at least one.
  ResidualNorms(const Transformer& model, int64_t tokens, double share);

  [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override;
  /// Layers to read by.
  [[nodiscard]] int64_t layers() const { return noted_.layers; }
  /// Gives the norms, once all tokens were read; ranges are those of a target that reads for itself, [i, i+1).
  [[nodiscard]] Speculation take() { return std::move(noted_); }

 private:
  Speculation noted_;
  int64_t done_ = 0;  // tokens whose last layer was seen
};

/// Runs the speculative model over the whole prompt and notes the norms of its residual stream. A checkpoint of its own
/// reads the layout's text by its own tokenizer; without a text, and where the target itself is that model, tokens are
/// the target's and range i of both sides is [i, i+1). The target holds the checkpoint (Transformer::helper), whose
/// passes requests take in turn, beside those of the target. Ends early, with norms of no use, once it is asked to
/// stop. Throws UserError when the checkpoint is absent, when its window is too short, or when it has another
/// vocabulary and there is no text.
[[nodiscard]] Speculation speculate(Transformer& target, std::span<const int32_t> tokens, const PromptLayout& layout,
                                    const SpeculativeModel& speculative, const std::stop_token& stop = {});

}  // namespace kvarena
