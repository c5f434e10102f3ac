#pragma once
// Regular expressions of official scorers, run as Python's re runs them on text.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

/// One match: the whole in [0], groups after it; a group that took no part is empty. Views into the searched text.
using RegexMatch = std::vector<std::string_view>;

/// A PCRE2 pattern with Unicode classes, the meaning closest to Python's re on str. Write \z for Python's \Z. Copying
/// is cheap and a compiled pattern may be used by many threads at once.
class Regex {
 public:
  enum class Dot { stops_at_newline, matches_all };
  /// Throws InternalError when the pattern does not compile: patterns are ours.
  explicit Regex(const std::string& pattern, Dot dot = Dot::stops_at_newline);

  /// re.search; an empty vector when nothing matches. Broken UTF-8 in `text` and matches beyond PCRE2's limits count as
  /// no match.
  [[nodiscard]] RegexMatch search(std::string_view text) const;

  /// All matches as re.finditer gives them: after an empty match the search goes on at the same place and must advance.
  [[nodiscard]] std::vector<RegexMatch> find_all(std::string_view text) const;

  /// re.sub: `text` with what `replacement` makes of each match in its place.
  [[nodiscard]] std::string sub(std::string_view text,
                                const std::function<std::string(const RegexMatch&)>& replacement) const;

 private:
  [[nodiscard]] RegexMatch match_at(std::string_view text, size_t start, uint32_t options) const;

  std::shared_ptr<const void> code_;
};

}  // namespace kvarena::metrics
