#include "harness/engine/reuse/rendered_results.h"

#include <algorithm>
#include <iterator>

namespace kvarena {
namespace {

constexpr const char* kBlanks = " \t\n\r\f\v";

}  // namespace

size_t RenderedContent::place(size_t of_content) const {
  return begin + std::clamp(of_content, blanks, blanks + size) - blanks;
}

std::optional<RenderedContent> find_content(const std::string& text, const std::string& content, size_t from) {
  const size_t whole = text.find(content, from);
  if (whole != std::string::npos) return RenderedContent{.begin = whole, .size = content.size()};
  const size_t blanks = std::min(content.find_first_not_of(kBlanks), content.size());
  const std::string bare = content.substr(blanks, content.find_last_not_of(kBlanks) + 1 - blanks);
  const size_t stripped = text.find(bare, from);
  if (stripped == std::string::npos) return std::nullopt;
  return RenderedContent{.begin = stripped, .size = bare.size(), .blanks = blanks};
}

void add_results(std::vector<ResultTokens>& to, const std::vector<RenderedResult>& results, std::string_view piece,
                 int64_t at, const std::vector<TextRange>& ranges, int64_t first) {
  for (const auto& [bytes, tool] : results) {
    const TextRange own{bytes.begin - at, bytes.end - at};
    if (own.begin < 0 || own.end > std::ssize(piece)) continue;
    const size_t before = piece.substr(0, static_cast<size_t>(own.begin)).find_last_not_of(kBlanks);
    const size_t behind = std::min(piece.find_first_not_of(kBlanks, static_cast<size_t>(own.end)), piece.size());
    const auto from = static_cast<int64_t>(before + 1);  // 0 behind npos
    auto begin = std::ranges::upper_bound(ranges, own.begin, {}, &TextRange::end);
    if (begin != ranges.end() && begin->begin < from) ++begin;
    auto end = std::ranges::lower_bound(begin, ranges.end(), own.end, {}, &TextRange::begin);
    if (end != begin && std::prev(end)->end > static_cast<int64_t>(behind)) --end;
    if (begin != end) to.push_back({first + (begin - ranges.begin()), first + (end - ranges.begin()), tool});
  }
}

}  // namespace kvarena
