#pragma once
// RULER's scorers, applied to one prediction.

#include <span>
#include <string>
#include <string_view>

namespace kvarena::metrics {

/// Stripped; every character below U+0020 a newline; stripped again.
[[nodiscard]] std::string ruler_postprocess(std::string_view prediction);

/// Share of the references that occur in the prediction without regard to case. 0 without references.
[[nodiscard]] double string_match_all(std::string_view prediction, std::span<const std::string> references);

/// 1 when any reference occurs.
[[nodiscard]] double string_match_part(std::string_view prediction, std::span<const std::string> references);

}  // namespace kvarena::metrics
