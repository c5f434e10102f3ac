#pragma once
// Sparse prefill: the prompt's queries attend to some of the entries before them. All entries stay, and tokens that
// follow the prompt attend to every one.
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

/// A prompt goes through the model in one pass under the pattern. Layers with a sliding window and whatever comes
/// behind the prompt attend as without the method. Activity counts the pairs of query and entry that are left out.
class PrefillMethod final : public PartMethod<PrefillPattern> {
 public:
  using PartMethod::PartMethod;

  [[nodiscard]] int64_t prompt_pass() const override { return kWholePrompt; }
  void select(LayerContext& layer, const LayerQueries& queries) const override;
};

#define KVARENA_PREFILL(type, ...)                   \
  KVARENA_REGISTER(type, ::kvarena::Family::prefill, \
                   std::make_unique<::kvarena::PrefillMethod>(std::make_unique<type>()), __VA_ARGS__)

}  // namespace kvarena
