#include "reports/text_width.h"

#include <array>
#include <cstdint>

namespace kvarena::reports {
namespace {

// Thousandths of an em, U+0020 to U+007E, from the horizontal metrics of DejaVu Sans 2.37.
constexpr std::array<int16_t, 95> kAdvance = {
    317, 400, 459, 837, 636, 950, 779, 274, 390, 390, 500, 837, 317, 360,  317, 336, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 336, 336, 837, 837, 837, 530, 1000, 684, 686, 698, 770, 631,
    575, 774, 751, 294, 294, 655, 557, 862, 748, 787, 603, 787, 694, 634,  610, 731, 684, 988, 685,
    610, 685, 390, 336, 390, 837, 500, 500, 612, 634, 549, 634, 615, 352,  634, 633, 277, 277, 579,
    277, 974, 633, 611, 634, 634, 411, 520, 392, 633, 591, 817, 591, 591,  524, 636, 336, 636, 837};

bool continues(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

double text_width(std::string_view text, double font_size) {
  int64_t thousandths = 0;
  for (const char c : text) {
    if (continues(c)) continue;
    thousandths += c >= 0x20 && c < 0x7F ? kAdvance[static_cast<size_t>(c) - 0x20] : 1000;
  }
  return static_cast<double>(thousandths) * font_size / 1000;
}

std::vector<std::string> wrap_text(std::string_view text, double font_size, double width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const size_t blank = text.find(' ');
    const std::string word(text.substr(0, blank));
    text = blank == std::string_view::npos ? std::string_view() : text.substr(blank + 1);
    if (!line.empty() && text_width(line + " " + word, font_size) > width) {
      lines.push_back(line);
      line = word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

std::string fit_text(std::string_view text, double font_size, double width) {
  if (text_width(text, font_size) <= width) return std::string(text);
  std::string shorter(text);
  while (!shorter.empty() && text_width(shorter, font_size) + font_size > width) {
    while (shorter.size() > 1 && continues(shorter.back())) shorter.pop_back();
    shorter.pop_back();
  }
  return shorter + "…";
}

}  // namespace kvarena::reports
