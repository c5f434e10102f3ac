#pragma once
// The alphabet in which byte-level tokenizers write bytes as printable characters (GPT-2's bytes_to_unicode).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvarena {

/// Printable bytes stand for themselves; the others, in order, for U+0100, U+0101, ...: a space is U+0120.
[[nodiscard]] const std::array<uint16_t, 256>& byte_alphabet();

/// "Ġthe" -> " the"; nothing when a character is not in the alphabet. Appends to `out` on success only.
bool append_bytes_of(std::string_view text, std::string& out);

/// " the" -> "Ġthe"
[[nodiscard]] std::string text_of_bytes(std::string_view bytes);

}  // namespace kvarena
