#include "harness/core/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace kvarena {
namespace {

constexpr size_t kWidthElsewhere = 100;
constexpr size_t kWidestText = 120;  // longer lines are hard to read
constexpr size_t kNarrowest = 40;

}  // namespace

size_t line_width(std::FILE* stream) {
  winsize size{};
  if (isatty(fileno(stream)) == 0 || ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return kWidthElsewhere;
  }
  return std::clamp<size_t>(size.ws_col, kNarrowest, kWidestText);
}

bool colours(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  return (no_color == nullptr || *no_color == '\0') && !dumb && isatty(fileno(stream)) != 0;
}

std::string bold(std::string_view text) {
  return colours(stdout) ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string wrap(std::string_view text, size_t width, size_t indent, size_t used) {
  std::string result;
  size_t column = used;
  bool line_is_empty = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const size_t wide = display_width(word);
    if (!line_is_empty && column + 1 + wide > width) {
      result.append(1, '\n').append(indent, ' ');
      column = indent;
      line_is_empty = true;
    }
    if (!line_is_empty) {
      result += ' ';
      ++column;
    }
    result += word;
    column += wide;
    line_is_empty = false;
  }
  return result;
}

std::string columns(const std::vector<std::vector<std::string>>& rows, size_t width) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += "  ";
      if (i + 1 == row.size()) {
        const size_t used = display_width(line);
        line += wrap(row[i], width, used, used);
      } else {
        line.append(row[i]).append(widths[i] - display_width(row[i]), ' ');
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text.append(line).append(1, '\n');
  }
  return text;
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array units{"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace kvarena
