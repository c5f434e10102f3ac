#include "harness/model/tokenizer/json_scanner.h"

#include <fmt/format.h>

#include <charconv>

#include "harness/core/error.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena {

void JsonScanner::fail_at(const std::string& expected) const {
  fail({.place = fmt::format("{}: byte {}", place_, at_),
        .found = at_ < text_.size() ? fmt::format("\"{}\"", replace_malformed_utf8(text_.substr(at_, 20))) : "the end",
        .expected = expected});
}

void JsonScanner::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

char JsonScanner::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

void JsonScanner::expect(char wanted) {
  if (peek() != wanted) fail_at(fmt::format("'{}'", wanted));
  ++at_;
}

void JsonScanner::begin_object() {
  expect('{');
  first_ = true;
}

void JsonScanner::begin_array() {
  expect('[');
  first_ = true;
}

bool JsonScanner::next(char close) {
  if (peek() == close) {
    ++at_;
    first_ = false;
    return false;
  }
  if (!first_) expect(',');
  first_ = false;
  return true;
}

bool JsonScanner::next_member(std::string_view& key) {
  if (!next('}')) return false;
  key = read_string(key_scratch_);
  expect(':');
  return true;
}

bool JsonScanner::next_item() { return next(']'); }

uint32_t JsonScanner::read_hex4() {
  uint32_t value = 0;
  const char* begin = text_.data() + at_;
  const char* end = text_.data() + std::min(at_ + 4, text_.size());
  const auto [stop, error] = std::from_chars(begin, end, value, 16);
  if (error != std::errc() || stop - begin != 4) fail_at("four hexadecimal digits");
  at_ += 4;
  return value;
}

void JsonScanner::append_escape(std::string& out) {
  if (at_ >= text_.size()) fail_at("an escaped character");
  switch (const char c = text_[at_++]; c) {
    case '"':
    case '\\':
    case '/': out.push_back(c); return;
    case 'b': out.push_back('\b'); return;
    case 'f': out.push_back('\f'); return;
    case 'n': out.push_back('\n'); return;
    case 'r': out.push_back('\r'); return;
    case 't': out.push_back('\t'); return;
    case 'u': break;
    default: --at_; fail_at("an escaped character");
  }
  uint32_t unit = read_hex4();
  if (unit >= 0xd800 && unit < 0xdc00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const uint32_t low = read_hex4();
    if (low < 0xdc00 || low > 0xdfff) fail_at("the second half of a surrogate pair");
    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
  }
  if (unit >= 0xd800 && unit <= 0xdfff) fail_at("a character, not half a surrogate pair");
  append_utf8(out, unit);
}

std::string_view JsonScanner::read_string(std::string& scratch) {
  expect('"');
  const size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') ++at_;
  if (at_ >= text_.size()) fail_at("the end of a string");
  if (text_[at_] == '"') return text_.substr(begin, at_++ - begin);
  scratch.assign(text_.substr(begin, at_ - begin));
  while (text_[at_] != '"') {
    if (text_[at_] == '\\') {
      ++at_;
      append_escape(scratch);
    } else {
      scratch.push_back(text_[at_++]);
    }
    if (at_ >= text_.size()) fail_at("the end of a string");
  }
  ++at_;
  return scratch;
}

int64_t JsonScanner::read_integer() {
  skip_space();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (error != std::errc()) fail_at("an integer");
  at_ = static_cast<size_t>(end - text_.data());
  return value;
}

void JsonScanner::skip_string() {
  ++at_;
  while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
  if (at_ >= text_.size()) {
    at_ = text_.size();
    fail_at("the end of a string");
  }
  ++at_;
}

std::string_view JsonScanner::skip_value() {
  skip_space();
  const size_t begin = at_;
  int64_t depth = 0;
  do {
    const char c = peek();
    if (at_ >= text_.size()) fail_at("a value");
    if (c == '"') {
      skip_string();
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at_;
    } else if (c == '}' || c == ']') {
      if (depth == 0) fail_at("a value");
      --depth;
      ++at_;
    } else if ((c == ',' || c == ':') && depth > 0) {
      ++at_;
    } else {  // a number or a word
      const size_t word = at_;
      while (at_ < text_.size() && std::string_view(",:]}\"[{ \n\r\t").find(text_[at_]) == std::string_view::npos)
        ++at_;
      if (at_ == word) fail_at("a value");
    }
  } while (depth > 0);
  return text_.substr(begin, at_ - begin);
}

}  // namespace kvarena
