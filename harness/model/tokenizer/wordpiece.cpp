#include "harness/model/tokenizer/wordpiece.h"

#include <algorithm>

namespace kvarena {
namespace {

bool starts_character(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) != 0x80; }

}  // namespace

void WordPiece::encode(std::string_view word, std::vector<int32_t>& out) const {
  const size_t before = out.size();
  const bool too_long = std::count_if(word.begin(), word.end(), starts_character) > max_characters_;
  for (size_t at = 0; at < word.size() && !too_long;) {
    size_t length = 0;
    const int32_t id = longest(word.substr(at), at > 0, length);
    if (id < 0) break;
    out.push_back(id);
    at += length;
    if (at == word.size()) return;
  }
  out.resize(before);
  out.push_back(unknown_);
}

int32_t WordPiece::longest(std::string_view rest, bool continues, size_t& length) const {
  std::string candidate = continues ? continuation_ : std::string();
  const size_t prefix = candidate.size();
  candidate += rest;
  for (length = rest.size(); length > 0; --length) {
    if (length < rest.size() && !starts_character(rest[length])) continue;
    const int32_t id = vocabulary_->find(std::string_view(candidate).substr(0, prefix + length));
    if (id >= 0) return id;
  }
  return -1;
}

}  // namespace kvarena
