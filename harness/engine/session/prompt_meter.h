#pragma once
// How much of a prompt's attention a method computes that attends to prompts sparsely, and how much of it that keeps.

#include <vector>

#include "harness/engine/session/forwarding_hooks.h"

namespace kvarena {

/// One layer's prompt, over its rows and query heads.
struct PromptAttention {
  double computed = 1;  // share of the pairs of a query and an entry up to its own
  double kept = 1;      // share of dense attention that falls on these pairs, mean
};

/// Stands between a prompt's one pass and its method's hooks. Dense attention is that of the pass's own queries and
/// keys; computing it takes the time that the method saves.
class PromptMeter final : public ForwardingHooks {
 public:
  /// Stands before a method's hooks, which must outlive the pass, and returns the hooks of the pass.
  AttentionHooks& watch(AttentionHooks& method) {
    forward_to(&method);
    return *this;
  }
  [[nodiscard]] HookAccess reach() const override { return std::max(HookAccess::rows, ForwardingHooks::reach()); }
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;

  /// [layers]; empty where no prompt went by.
  [[nodiscard]] const std::vector<PromptAttention>& layers() const { return layers_; }
  /// The mean over layers.
  [[nodiscard]] PromptAttention mean() const;

 private:
  std::vector<PromptAttention> layers_;
};

}  // namespace kvarena
