#include "harness/model/tokenizer/decoder.h"

#include <charconv>

#include "harness/model/tokenizer/replace.h"

namespace kvarena {
namespace {

constexpr TextBounds kBounds{.component = "decoder", .bytes = size_t{1} << 20U};  // of one token

/// The order and the odd "do not" are those of Hugging Face `tokenizers`, whose output we match.
void clean_up(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kRules) replace_all(text, from, to, kBounds);
}

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  return error == std::errc() && end == token.data() + 5 ? value : -1;
}

std::string Decoder::bytes_of(std::string_view token, bool first) const {
  std::string text(token);
  switch (kind) {
    case Kind::byte_level: return text;
    case Kind::plain: return first ? text : " " + text;
    case Kind::sentencepiece:
      if (const int byte = byte_fallback ? byte_of_token(token) : -1; byte >= 0) {
        text.assign(1, static_cast<char>(byte));
      } else {
        if (first && !first_token_drops.empty()) replace_all(text, first_token_drops, "", kBounds);
        for (const auto& [from, to] : replacements) replace_all(text, from, to, kBounds);
      }
      if (first && strip_first_space && text.starts_with(' ')) text.erase(0, 1);
      return text;
    case Kind::wordpiece:
      if (!first) {
        if (token.starts_with(continuation)) {
          text.erase(0, continuation.size());
        } else {
          text.insert(0, 1, ' ');
        }
      }
      if (cleanup) clean_up(text);
      return text;
  }
  return text;
}

}  // namespace kvarena
