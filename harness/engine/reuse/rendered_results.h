#pragma once
// Results of tools in a rendered chat, as tokens.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/core/text_range.h"
#include "harness/method/tool_results.h"

namespace kvarena {

/// A message's content in a rendered text. Templates may take away the blanks around it, and nothing else.
struct RenderedContent {
  size_t begin = 0;   // in the text
  size_t size = 0;    // without the blanks that are gone
  size_t blanks = 0;  // gone before it

  [[nodiscard]] size_t end() const { return begin + size; }
  /// The byte of the text where byte `of_content` is; the next one that is there, where it is gone.
  [[nodiscard]] size_t place(size_t of_content) const;
};

/// Finds a content at or behind byte `from`; nothing where the template changed it.
[[nodiscard]] std::optional<RenderedContent> find_content(const std::string& text, const std::string& content,
                                                          size_t from);

/// A tool's result in a rendered text, by bytes.
struct RenderedResult {
  TextRange bytes;
  std::string tool;
};

/// Adds, as tokens, the results that lie in the piece of the rendered text that begins at byte `at`: tokens `ranges` of
/// the piece, whose first is number `first` of the request. A token that has more than blanks beside a result is not
/// its own.
void add_results(std::vector<ResultTokens>& to, const std::vector<RenderedResult>& results, std::string_view piece,
                 int64_t at, const std::vector<TextRange>& ranges, int64_t first);

}  // namespace kvarena
