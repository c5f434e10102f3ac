#pragma once
// Unicode as Python 3.11 sees it (Unicode 14.0). The official scorers are Python programs whose str.lower, str.split
// and regex classes work on code points; these functions give the same answers on UTF-8 text.

#include <cstddef>
#include <string>
#include <string_view>

namespace kvarena::metrics {

/// The code point that starts at `position`, which moves past it. A malformed sequence gives U+FFFD, once per maximal
/// broken part, as Python's errors="replace" does. `position` must be below text.size().
char32_t next_code_point(std::string_view text, size_t& position);

[[nodiscard]] std::u32string decode_utf8(std::string_view text);
[[nodiscard]] std::string encode_utf8(std::u32string_view text);
void append_utf8(std::string& out, char32_t code_point);

/// Whether `text` is well-formed UTF-8; if not, `bad_byte` (when given) is the offset of the first broken sequence.
[[nodiscard]] bool is_valid_utf8(std::string_view text, size_t* bad_byte = nullptr);

/// str.isspace, also what the regex class \s matches.
[[nodiscard]] bool is_space(char32_t c);
/// str.isdecimal: the regex class \d, in every script.
[[nodiscard]] bool is_decimal(char32_t c);
/// The value 0..9 of a character for which is_decimal holds.
[[nodiscard]] int decimal_value(char32_t c);
/// str.isupper, str.islower, and whether it is a title-case letter, of one character.
[[nodiscard]] bool is_upper(char32_t c);
[[nodiscard]] bool is_lower(char32_t c);
[[nodiscard]] bool is_title(char32_t c);
/// The regex class \w: letters and numbers of every script and the underscore.
[[nodiscard]] bool is_word(char32_t c);

/// str.lower: full lower-casing; one code point can become two, and a final capital sigma becomes the final small one.
[[nodiscard]] std::string lower(std::string_view text);

}  // namespace kvarena::metrics
