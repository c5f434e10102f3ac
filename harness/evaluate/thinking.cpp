#include "harness/evaluate/thinking.h"

#include <algorithm>

namespace kvarena::evaluate {

Thinking thinking_of(const ChatTemplate& chat, const Tokenizer& tokenizer, std::string_view prompt) {
  if (!chat.thinking()) return {};
  const auto [open, close] = *chat.thinking();
  const size_t opened = prompt.rfind(open), closed = prompt.rfind(close);
  const bool begun = opened != std::string_view::npos && (closed == std::string_view::npos || closed < opened) &&
                     prompt.find_first_not_of(" \n", opened + open.size()) == std::string_view::npos;
  return {.open = tokenizer.encode(open, {.add_special = false}),
          .close = tokenizer.encode(close, {.add_special = false}),
          .begun = begun};
}

int64_t thinking_tokens(const Thinking& thinking, std::span<const int32_t> tokens) {
  if (thinking.close.empty()) return 0;
  const auto end = std::ranges::find_end(tokens, thinking.close);
  if (!end.empty()) return end.end() - tokens.begin();
  const bool open = thinking.begun || !std::ranges::search(tokens, thinking.open).empty();
  return open ? std::ssize(tokens) : 0;
}

std::string text_after(const Thinking& thinking, const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  const int64_t thought = thinking_tokens(thinking, tokens);
  std::string text = tokenizer.decode(tokens.subspan(static_cast<size_t>(thought)));
  if (thought > 0) text.erase(0, std::min(text.find_first_not_of(" \n"), text.size()));
  return text;
}

}  // namespace kvarena::evaluate
