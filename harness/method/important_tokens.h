#pragma once
// Choosing tokens by importance, completing what belongs together, and taking a choice to another tokenizer. Wen et al.
// 2026 (SpecCache), sections 2.2 to 2.4.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/core/text_range.h"
#include "harness/method/reuser.h"

namespace kvarena {

/// Mean over the chosen layers of each token's norm, [tokens] (Eq. 1). `layers`: "all", "final", "last_third" or
/// "last_two_thirds" of those that were run, rounded up.
[[nodiscard]] std::vector<double> token_importance(const Speculation& speculation, const std::string& layers);

/// The `count` most important tokens, ascending; equal ones by lower index (Eq. 2).
[[nodiscard]] std::vector<int32_t> most_important(std::span<const double> importance, int64_t count);

/// Cuts the tokens into spans (Eqs. 3 and 4): token i + 1 joins token i's span while the step between their
/// importances, scaled to 0 .. 1 and relative to token i's, is below `smooth` and the span has fewer than `longest`
/// tokens. From an importance of 0 any step is infinite, and none is none.
[[nodiscard]] std::vector<PromptPart> smooth_spans(std::span<const double> importance, double smooth, int64_t longest);

/// `selected`, ascending, and all tokens of the spans of which at least the share `cover` is selected (Eqs. 5 and 6).
[[nodiscard]] std::vector<int32_t> complete_spans(const std::vector<PromptPart>& spans,
                                                  std::span<const int32_t> selected, double cover);

/// Tokens of `target` that overlap a selected token of `ranges` in the text (Eq. 7), ascending. Tokens without text
/// are left out.
[[nodiscard]] std::vector<int32_t> align_tokens(std::span<const int32_t> selected, std::span<const TextRange> ranges,
                                                std::span<const TextRange> target);

}  // namespace kvarena
