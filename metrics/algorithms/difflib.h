#pragma once
// Similarity of two strings as fuzzywuzzy 0.18 computes it on its two back ends.

#include <string_view>

namespace kvarena::metrics {

/// difflib.SequenceMatcher(None, a, b).ratio() on code points, autojunk included: 2 M / (|a| + |b|) with M from taking
/// the longest matching block and recursing to its left and right. Two empty texts give 1.
[[nodiscard]] double difflib_ratio(std::u32string_view a, std::u32string_view b);

/// python-Levenshtein's ratio: (|a| + |b| - d) / (|a| + |b|), d counting insertions and deletions only.
[[nodiscard]] double indel_ratio(std::u32string_view a, std::u32string_view b);

}  // namespace kvarena::metrics
