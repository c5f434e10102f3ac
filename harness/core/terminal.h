#pragma once
// Layout of text for people: widths, wrapping, columns, bold where a terminal shows it.

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

/// Characters a line may have: the terminal's width, at most 120; 100 when `stream` is no terminal.
[[nodiscard]] size_t line_width(std::FILE* stream);

/// Whether to write escape sequences: `stream` is a terminal that is not dumb and NO_COLOR is not set.
[[nodiscard]] bool colours(std::FILE* stream);

/// `text` in bold where standard output shows it.
[[nodiscard]] std::string bold(std::string_view text);

/// Characters on screen: UTF-8 code points.
[[nodiscard]] size_t display_width(std::string_view text);

/// Breaks at blanks so that lines after the first begin with `indent` blanks and none is wider than `width`, words that
/// are longer excepted. The first line begins `used` characters in.
[[nodiscard]] std::string wrap(std::string_view text, size_t width, size_t indent, size_t used);

/// Rows in aligned columns, two blanks before each row and between columns; the last column is wrapped.
[[nodiscard]] std::string columns(const std::vector<std::vector<std::string>>& rows, size_t width);

/// "1.5 MiB", "320 bytes".
[[nodiscard]] std::string bytes_text(int64_t bytes);

}  // namespace kvarena
