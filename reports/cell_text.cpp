#include "reports/cell_text.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>

#include "harness/core/error.h"
#include "reports/emulated.h"

namespace kvarena::reports {
namespace {

constexpr std::array<std::string_view, 7> kWords = {"mean", "interval", "low", "high", "n", "difference", "published"};

CellWord word_of(std::string_view name) {
  for (size_t at = 0; at < kWords.size(); ++at) {
    if (kWords[at] == name) return static_cast<CellWord>(at);
  }
  fail({.place = "table.cell",
        .found = fmt::format("{{{}}}", name),
        .expected = "one of: mean, interval, low, high, n, difference, published"});
}

/// One line of a format, without numbers.
std::vector<CellPart> read_line(std::string_view line) {
  std::vector<CellPart> parts;
  while (true) {
    const size_t open = line.find('{');
    const size_t close = open == std::string_view::npos ? open : line.find('}', open);
    if (close == std::string_view::npos) {
      if (!parts.empty()) parts.back().after = line;
      return parts;
    }
    parts.push_back(
        {.word = word_of(line.substr(open + 1, close - open - 1)), .before = std::string(line.substr(0, open))});
    line.remove_prefix(close + 1);
  }
}

std::optional<std::string> text_of(CellWord word, const TableCell& cell, NumberFormat format) {
  const auto print = [&](double value) {
    return cell.is_signed ? format_signed(value, format) : format_number(value, format);
  };
  const auto& interval = cell.interval;
  switch (word) {
    case CellWord::mean: return print(cell.value);
    case CellWord::interval:
      return interval ? std::optional(format_number((interval->high - interval->low) / 2, format)) : std::nullopt;
    case CellWord::low: return interval ? std::optional(print(interval->low)) : std::nullopt;
    case CellWord::high: return interval ? std::optional(print(interval->high)) : std::nullopt;
    case CellWord::n: return cell.samples ? std::optional(fmt::format("{}", *cell.samples)) : std::nullopt;
    case CellWord::difference:
      return cell.difference ? std::optional(difference_text(*cell.difference, format)) : std::nullopt;
    case CellWord::published: return cell.published ? std::optional(print(*cell.published)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::vector<CellPart>> cell_lines(const TableCell& cell, const Column& column, const std::string& format) {
  std::vector<std::vector<CellPart>> lines;
  for (std::string_view rest = format; !rest.empty();) {
    const size_t end = rest.find('\n');
    std::vector<CellPart> line;
    for (CellPart& part : read_line(rest.substr(0, end))) {
      auto text = text_of(part.word, cell, format_of(cell, column));
      if (!text) continue;
      part.text = std::move(*text);
      line.push_back(std::move(part));
    }
    if (!line.empty()) lines.push_back(std::move(line));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return lines;
}

std::string column_head(const Column& column) {
  constexpr const char* kArrow[] = {" ↑", " ↓", ""};
  return column.title + (column.unit.empty() ? "" : " (" + column.unit + ")") +
         kArrow[static_cast<size_t>(column.better)];
}

std::string origin_words(const TableCell& cell) {
  std::string words;
  const auto add = [&](bool shown, const char* word) {
    if (shown) words += (words.empty() ? "" : ", ") + std::string(word);
  };
  add(cell.simulated, "simulated");
  add(cell.emulated, kEmulatedMark);
  add(cell.modelled, "modelled");
  add(cell.kind == CellKind::not_comparable, "not comparable");
  return words;
}

void keep_named(TableCell& cell, const std::string& format) {
  const auto named = [&](CellWord word) {
    return format.find(fmt::format("{{{}}}", kWords[static_cast<size_t>(word)])) != std::string::npos;
  };
  if (!named(CellWord::interval) && !named(CellWord::low) && !named(CellWord::high)) cell.interval.reset();
  if (!named(CellWord::n)) cell.samples.reset();
  if (!named(CellWord::difference)) cell.difference.reset();
  if (!named(CellWord::published)) cell.published.reset();
}

}  // namespace kvarena::reports
