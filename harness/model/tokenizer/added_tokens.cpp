#include "harness/model/tokenizer/added_tokens.h"

#include <algorithm>

#include "harness/model/tokenizer/unicode.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena {
namespace {

/// \w: letters, marks, decimal numbers and connector punctuation, of which "_" is the one met in practice.
bool is_word(uint32_t c) {
  return c == '_' || (unicode::classes(c) & (unicode::kLetter | unicode::kMark | unicode::kNumber)) != 0;
}

bool is_space(uint32_t c) { return (unicode::classes(c) & unicode::kSpace) != 0; }

size_t start_of_last_character(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word(code_point_at(text, start_of_last_character(text, begin)).value)) return true;
  return end < text.size() && is_word(code_point_at(text, end).value);
}

size_t skip_space_left(std::string_view text, size_t begin) {
  while (begin > 0) {
    const size_t at = start_of_last_character(text, begin);
    if (!is_space(code_point_at(text, at).value)) break;
    begin = at;
  }
  return begin;
}

size_t skip_space_right(std::string_view text, size_t end) {
  while (end < text.size()) {
    const CodePoint c = code_point_at(text, end);
    if (!is_space(c.value)) break;
    end += c.length;
  }
  return end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& token : tokens_) starts_[static_cast<uint8_t>(token.content[0])] = true;
}

const AddedToken* AddedTokenMatcher::match_at(std::string_view text, size_t at) const {
  // The range of tokens that agree with the text so far shrinks with each byte.
  auto first = tokens_.begin();
  auto last = tokens_.end();
  const AddedToken* longest = nullptr;
  for (size_t depth = 0; first != last && at + depth < text.size(); ++depth) {
    const auto wanted = static_cast<uint8_t>(text[at + depth]);
    const auto byte_of = [&](const AddedToken& token) {
      return depth < token.content.size() ? static_cast<int>(static_cast<uint8_t>(token.content[depth])) : -1;
    };
    first = std::partition_point(first, last, [&](const AddedToken& token) { return byte_of(token) < wanted; });
    last = std::partition_point(first, last, [&](const AddedToken& token) { return byte_of(token) <= wanted; });
    if (first != last && first->content.size() == depth + 1) longest = &*first;
  }
  return longest;
}

std::vector<TextPart> AddedTokenMatcher::split(std::string_view text, bool special) const {
  std::vector<TextPart> parts;
  size_t done = 0;
  const auto emit_text = [&](size_t end) {
    if (done < end) parts.push_back({text.substr(done, end - done), -1});
  };
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = starts_[static_cast<uint8_t>(text[at])] ? match_at(text, at) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;
    if (token->special && !special) continue;
    if (token->single_word && touches_word(text, begin, end)) continue;
    if (token->lstrip) begin = std::max(skip_space_left(text, begin), done);
    if (token->rstrip) end = skip_space_right(text, end);
    emit_text(begin);
    parts.push_back({text.substr(begin, end - begin), token->id});
    at = done = end;
  }
  emit_text(text.size());
  return parts;
}

}  // namespace kvarena
