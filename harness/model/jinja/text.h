#pragma once
// Python's methods of strings, for UTF-8.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::jinja {

/// Characters of a text, each a string.
[[nodiscard]] std::vector<std::string> characters_of(std::string_view text);

enum class Side : uint8_t { left, right, both };
/// Takes away white space, or any of `what` where it is not empty, at the ends.
[[nodiscard]] std::string_view strip(std::string_view text, std::string_view what, Side side);

/// text.split(separator, most), or rsplit; white space where the separator is empty, any number of times where `most`
/// is negative.
[[nodiscard]] std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t most,
                                             bool from_right);

/// Each `from` becomes `to`, at most `most` times where that is not negative.
[[nodiscard]] std::string replace_all(std::string_view text, std::string_view from, std::string_view to, int64_t most);

/// Letters of ASCII; others stay.
[[nodiscard]] std::string upper(std::string_view text);
[[nodiscard]] std::string lower(std::string_view text);
/// The first letter of the text, or of each word, is large and the others are small.
[[nodiscard]] std::string capitalised(std::string_view text, bool each_word);

}  // namespace kvarena::jinja
