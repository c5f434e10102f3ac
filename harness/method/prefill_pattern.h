#pragma once
// Sparse prefill: the prompt's queries attend to some of the entries before them. All entries stay, and tokens that
// follow the prompt attend to every one, unless another method takes over ("then").
//
//   class AShape final : public PrefillPattern {
//    public:
//     PromptRanges attended(const LayerContext& layer, const LayerQueries& queries) const override { ... }
//   };
//   KVARENA_PREFILL(AShape, {.name = "a_shape", .title = "A-shape", .summary = "...", .paper = "..."});

#include <memory>
#include <vector>

#include "harness/cache/entry_ranges_view.h"
#include "harness/method/part_method.h"
#include "harness/method/registry.h"
#include "harness/method/tool_results.h"

namespace kvarena {

/// Entries that the rows of a prompt attend to; a row that is in several RowRanges finds other entries in each.
using PromptRanges = std::vector<RowRanges>;

/// Chooses what the queries of a prompt attend to, layer by layer.
class PrefillPattern : public MethodPart {
 public:
  /// Ranges of the layer's tail for all rows of `queries`; row t owns entry t. Empty: each attends to everything up to
  /// its own entry.
  [[nodiscard]] virtual PromptRanges attended(const LayerContext& layer, const LayerQueries& queries) const = 0;
};

/// A prompt goes through the model in one pass under the pattern. Layers with a sliding window attend as without the
/// method. What comes behind the prompt attends to everything or, with "then", as another method has it, which
/// compresses the prompt or retrieves from it as it would after a full prefill; what it observes is the sparse one.
/// Activity counts the pairs of query and entry that are left out.
class PrefillMethod final : public PartMethod<PrefillPattern>, public ReadsToolResults {
 public:
  using PartMethod::PartMethod;

  void parameters(ParameterVisitor& p) override;
  void check(const std::string& place, std::vector<std::string>& problems) const override;
  [[nodiscard]] Needs needs() const override { return then_ ? then_->needs() : Needs{}; }
  [[nodiscard]] int64_t prompt_pass() const override { return kWholePrompt; }
  void select(LayerContext& layer, const LayerQueries& queries) const override;

  // The other method's, behind the prompt.
  [[nodiscard]] HookAccess reach() const override { return then_ ? then_->reach() : HookAccess::nothing; }
  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const override;
  void on_tokens(RequestContext& request, std::span<const int32_t> tokens) const override;
  void begin_step(RequestContext& request, int64_t q_len) const override;
  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override;
  void after_append(LayerContext& layer) const override;
  [[nodiscard]] std::string cannot_draft() const override { return then_ ? then_->cannot_draft() : ""; }
  [[nodiscard]] bool follows_memory() const override { return then_ && then_->follows_memory(); }
  void take_results(KvCache& cache, std::span<const ResultTokens> results) const override;

 private:
  /// Sets the view of a prompt's pass.
  void attend_sparsely(LayerContext& layer, const LayerQueries& queries) const;

  Nested<Method> then_;
};

#define KVARENA_PREFILL(type, ...)                   \
  KVARENA_REGISTER(type, ::kvarena::Family::prefill, \
                   std::make_unique<::kvarena::PrefillMethod>(std::make_unique<type>()), __VA_ARGS__)

}  // namespace kvarena
