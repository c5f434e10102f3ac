#pragma once
// UTF-8: stepping, validity, and the replacement of what is malformed.

#include <cstdint>
#include <string>
#include <string_view>

namespace kvarena {

struct CodePoint {
  uint32_t value;
  uint32_t length;  // bytes
};

/// The code point at text[at]. The text is valid UTF-8 and `at` is the start of a character inside it.
[[nodiscard]] inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at + i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (lead < 0xf0) return {(lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

void append_utf8(std::string& out, uint32_t code_point);

/// The next character, or malformed part, of a byte sequence.
struct Utf8Step {
  enum class Kind { valid, malformed, incomplete };
  Kind kind;
  uint32_t length;  // bytes of the character, or of the part that one U+FFFD replaces
};

/// `malformed` covers the longest beginning of a character that cannot be completed (at least one byte), as the
/// Unicode Standard (3.9, "maximal subparts") and every browser do; `incomplete` is such a beginning at the text's end.
[[nodiscard]] Utf8Step step_utf8(std::string_view text, size_t at);

[[nodiscard]] bool is_valid_utf8(std::string_view text);

/// `text` with U+FFFD for each malformed part.
[[nodiscard]] std::string replace_malformed_utf8(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace kvarena
