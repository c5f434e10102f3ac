#pragma once
// Character classes and normalisation forms, from the Unicode tables of utf8proc.

#include <cstdint>
#include <string>
#include <string_view>

namespace kvarena::unicode {

/// Bits of a character's classes. letter is \p{L}, number \p{N}, punctuation \p{P}, symbol \p{S}, mark \p{M}, space
/// \s (White_Space), newline [\r\n] (a space too).
enum Class : uint8_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,
  kNewline = 8,
  kPunctuation = 16,
  kSymbol = 32,
  kMark = 64,
  kOtherCategory = 128,  // \p{C}: control, format, surrogate, private use, unassigned
};

namespace detail {
struct ClassTable {
  uint8_t of[0x10000];  // the Basic Multilingual Plane
  ClassTable();
};
extern const ClassTable kTable;
[[nodiscard]] uint8_t classify(uint32_t code_point);
}  // namespace detail

[[nodiscard]] inline uint8_t classes(uint32_t code_point) {
  return code_point < 0x10000 ? detail::kTable.of[code_point] : detail::classify(code_point);
}

/// Non-spacing marks, \p{Mn}: what is left of accents after decomposition.
[[nodiscard]] bool is_nonspacing_mark(uint32_t code_point);

/// Simple or special lower case, context-free, as in Rust's char::to_lowercase.
void append_lowercase(std::string& out, uint32_t code_point);

enum class Form : uint8_t { nfc, nfd, nfkc, nfkd };

/// `text`, valid UTF-8, in a normalisation form.
[[nodiscard]] std::string normalize(std::string_view text, Form form);

/// True when no character can change under NFC: a quick answer, with false where it would take work to know.
[[nodiscard]] bool is_surely_nfc(std::string_view text);

}  // namespace kvarena::unicode
