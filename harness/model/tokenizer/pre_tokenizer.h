#pragma once
// The steps that cut a text into pieces, beside the scanners.

#include <string>

#include "harness/model/tokenizer/pieces.h"

namespace kvarena {

/// Treatment of the matches of a splitting pattern.
enum class SplitBehavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// Cuts at matches of a regular expression; `invert`: at what lies between them. Throws UserError naming `place` for
/// an expression that is wrong.
[[nodiscard]] PreTokenizerPtr make_regex_split(const std::string& pattern, SplitBehavior behavior, bool invert,
                                               const std::string& place);

/// Cuts at a fixed string.
[[nodiscard]] PreTokenizerPtr make_string_split(std::string delimiter, SplitBehavior behavior, bool invert);

/// Cuts at punctuation (\p{P} and the ASCII signs) or at white space.
[[nodiscard]] PreTokenizerPtr make_punctuation_split(SplitBehavior behavior);
[[nodiscard]] PreTokenizerPtr make_white_space_split();

/// Puts a space before each piece that does not begin with one.
[[nodiscard]] PreTokenizerPtr make_prefix_space();

enum class PrependScheme : uint8_t { never, first, always };

/// Replaces spaces by `replacement`; puts one before each piece (`always`) or the input (`first`) unless it is there;
/// `split`: cuts each piece before every replacement.
[[nodiscard]] PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme scheme, bool split);

/// Cuts before each run of `mark`.
[[nodiscard]] PreTokenizerPtr make_cut_before_runs(std::string mark);

}  // namespace kvarena
