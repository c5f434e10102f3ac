#pragma once
// Place of each token of an encoding in the text.

#include <vector>

#include "harness/core/text_range.h"
#include "harness/model/tokenizer/tokenizer.h"

namespace kvarena {

/// Ranges of `ids`, an encoding of `text`, ascending and without a gap: every byte belongs to a token. Tokens that the
/// text does not write (a leading <s>) are empty. Tokens whose bytes are not those of the text, because a normalizer
/// changed it or because it was no UTF-8, share the stretch between their neighbours; so do the parts of one character
/// that several tokens spell.
[[nodiscard]] std::vector<TextRange> token_ranges(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                                  std::string_view text);

}  // namespace kvarena
