#pragma once
// Thinking before an answer, told apart by the marks of the chat template.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/model/chat_template.h"
#include "harness/model/tokenizer/tokenizer.h"

namespace kvarena::evaluate {

struct Thinking {
  std::vector<int32_t> open;   // tokens before it; none where the template knows no thinking
  std::vector<int32_t> close;  // tokens behind it
  bool begun = false;          // the prompt ends inside it
};

/// Marks of a template whose prompt is `prompt`.
[[nodiscard]] Thinking thinking_of(const ChatTemplate& chat, const Tokenizer& tokenizer, std::string_view prompt);

/// Tokens of an answer that are thinking, its end mark included: all of them where it does not end.
[[nodiscard]] int64_t thinking_tokens(const Thinking& thinking, std::span<const int32_t> tokens);

/// The text behind thinking, without the white space between them; all of it where there is none.
[[nodiscard]] std::string text_after(const Thinking& thinking, const Tokenizer& tokenizer,
                                     std::span<const int32_t> tokens);

}  // namespace kvarena::evaluate
