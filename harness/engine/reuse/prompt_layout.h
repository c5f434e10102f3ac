#pragma once
// The parts of a prompt.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/core/text_range.h"
#include "harness/method/tool_results.h"

namespace kvarena {

/// Parts as far as the caller knows them; a prompt without a layout is one context whose last token is the question.
struct PromptLayout {
  int64_t prefix = 0;                 // first tokens, which every request of its kind shares (chat template)
  std::optional<int64_t> question;    // first token behind the context
  std::string text;                   // of the whole prompt; empty: not known
  std::vector<TextRange> ranges;      // [n], of the tokens in `text`; empty with it
  std::vector<ResultTokens> results;  // of tools, in their order, those behind the prompt included
};

}  // namespace kvarena
