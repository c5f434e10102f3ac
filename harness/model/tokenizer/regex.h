#pragma once
// Regular expressions over UTF-8 with Unicode classes, for patterns without a scanner of their own. PCRE2 inside.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace kvarena {

/// A compiled pattern. Immutable.
class TokenizerRegex {
 public:
  /// Throws UserError that names `place` and where the pattern is wrong.
  TokenizerRegex(const std::string& pattern, const std::string& place);
  ~TokenizerRegex();
  TokenizerRegex(TokenizerRegex&&) noexcept;
  TokenizerRegex& operator=(TokenizerRegex&&) noexcept;

  /// Calls visit(begin, end) for each match from left to right, matches not overlapping, empty ones left out.
  /// `text` is valid UTF-8. Thread-safe. Throws UserError when a match exceeds PCRE2's limits.
  void each_match(std::string_view text, const std::function<void(size_t, size_t)>& visit) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace kvarena
