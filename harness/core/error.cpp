#include "harness/core/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace kvarena {
namespace {

/// Levenshtein distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

std::string lower(std::string_view text) {
  std::string low(text);
  std::ranges::transform(low, low.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return low;
}

/// Whether one of the words that '_', '-' or '/' separate in `name` is `word`.
bool has_word(std::string_view name, std::string_view word) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find_first_of("_-/", begin), name.size());
    if (name.substr(begin, end - begin) == word) return !word.empty();
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::string describe(const ErrorParts& parts) {
  std::string text = parts.place;
  const auto add = [&](std::string_view separator, const std::string& part) {
    if (part.empty()) return;
    if (!text.empty()) text += separator;
    text += part;
  };
  add(": ", parts.found.empty() ? "" : "found " + parts.found);
  add(parts.found.empty() ? ": " : ", ", parts.expected.empty() ? "" : "expected " + parts.expected);
  add("; ", parts.nearest.empty() ? "" : fmt::format("did you mean \"{}\"?", parts.nearest));
  add(parts.nearest.empty() ? "; " : " ", parts.action);
  return text;
}

void fail(const ErrorParts& parts) { throw UserError(describe(parts)); }

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  const std::string wanted = lower(word);
  std::pair best_distance(std::max<size_t>(2, word.size() / 3) + 1, size_t{0});  // and, for a word, the name's length
  for (const std::string& candidate : candidates) {
    const std::string name = lower(candidate);
    const std::pair distance =
        has_word(name, wanted) ? std::pair(size_t{0}, name.size()) : std::pair(edit_distance(wanted, name), size_t{0});
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

namespace detail {

void raise_internal(const char* condition, const std::string& values, std::source_location where) {
  throw InternalError(fmt::format("internal error at {}:{}: {} does not hold ({}); please report this",
                                  where.file_name(), where.line(), condition, values));
}

}  // namespace detail
}  // namespace kvarena
