#pragma once
// Chinese text as LongBench and InfiniteBench normalise it.

#include <string>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

/// Lower-cased; ASCII punctuation, the official list of Chinese punctuation (which lacks U+300A) and white space
/// deleted.
[[nodiscard]] std::string normalized_chinese(std::string_view text);

/// One string for each code point.
[[nodiscard]] std::vector<std::string> characters_of(std::string_view text);

}  // namespace kvarena::metrics
