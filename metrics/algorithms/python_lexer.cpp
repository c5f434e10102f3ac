#include "metrics/algorithms/python_lexer.h"

#include <charconv>
#include <cstdlib>

#include "metrics/unicode/code_points.h"

namespace kvarena::metrics::python {
namespace {

PythonValue integer(const std::string& text, int base) {
  PythonValue value{.type = PythonValue::Type::integer};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.integer, base);
  if (error == std::errc{}) return value;
  value.big = true;
  for (const char c : text) value.real = value.real * base + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
  return value;
}

}  // namespace

bool Lexer::at_end() {
  skip_blanks();
  return at_ == text_.size();
}

bool Lexer::number_starts() const {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return is_digit(peek()) || (peek() == '.' && is_digit(peek(1)));
}

// Everything stands inside brackets, where line ends and comments are blanks.
void Lexer::skip_blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f') {
      ++at_;
    } else if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      at_ += peek(1) == '\n' ? 2 : 3;
    } else {
      return;
    }
  }
}

bool Lexer::accept(std::string_view token) {
  skip_blanks();
  if (!text_.substr(at_).starts_with(token)) return false;
  at_ += token.size();
  return true;
}

void Lexer::expect(std::string_view token) {
  if (!accept(token)) throw SyntaxError{};
}

bool Lexer::accept_word(std::string_view word) {
  const size_t start = at_;
  if (identifier() == word) return true;
  at_ = start;
  return false;
}

bool Lexer::next_is(std::string_view token) {
  skip_blanks();
  return text_.substr(at_).starts_with(token);
}

std::string_view Lexer::identifier() {
  skip_blanks();
  const size_t start = at_;
  while (at_ < text_.size()) {
    size_t next = at_;
    const char32_t c = next_code_point(text_, next);
    if (!is_word(c) || (at_ == start && is_decimal(c))) break;
    at_ = next;
  }
  return text_.substr(start, at_ - start);
}

// Digits of `base` with single underscores between them.
std::string Lexer::digits(int base) {
  std::string out;
  const auto is_digit = [&](char c) {
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : 99;
    return value < base;
  };
  while (is_digit(peek()) || (peek() == '_' && !out.empty() && is_digit(peek(1)))) {
    if (peek() != '_') out.push_back(peek());
    ++at_;
  }
  return out;
}

PythonValue Lexer::number() {
  PythonValue value;
  const char marker = static_cast<char>(peek(1) | 32);
  if (peek() == '0' && (marker == 'x' || marker == 'o' || marker == 'b')) {
    const int base = marker == 'x' ? 16 : marker == 'o' ? 8 : 2;
    at_ += 2;
    if (peek() == '_') ++at_;
    const std::string text = digits(base);
    if (text.empty()) throw SyntaxError{};
    value = integer(text, base);
  } else {
    value = decimal_number();
  }
  size_t next = at_;
  if (at_ < text_.size() && is_word(next_code_point(text_, next))) throw SyntaxError{};  // 5km, 1j
  return value;
}

PythonValue Lexer::decimal_number() {
  std::string text = digits(10);
  bool real = false;
  if (peek() == '.') {
    ++at_;
    real = true;
    text.push_back('.');
    text.append(digits(10));
  }
  const size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
  if ((peek() == 'e' || peek() == 'E') && peek(1 + sign) >= '0' && peek(1 + sign) <= '9') {
    text.push_back('e');
    text.append(text_.substr(at_ + 1, sign));
    at_ += 1 + sign;
    text.append(digits(10));
    real = true;
  }
  if (real) return {.type = PythonValue::Type::real, .real = std::strtod(text.c_str(), nullptr)};
  if (text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos) throw SyntaxError{};
  return integer(text, 10);
}

size_t Lexer::prefix_length() const {
  size_t n = 0;
  while (n < 2 && std::string_view("rRuUbBfF").find(peek(n)) != std::string_view::npos && peek(n) != '\0') ++n;
  return n;
}

bool Lexer::string_starts() const {
  const char c = peek(prefix_length());
  return c == '"' || c == '\'';
}

// Adjoining literals are one string.
PythonValue Lexer::strings() {
  PythonValue value{.type = PythonValue::Type::string};
  do {
    value.string += one_string();
    skip_blanks();
  } while (string_starts());
  return value;
}

std::string Lexer::one_string() {
  const size_t length = prefix_length();
  const std::string prefix = lower(text_.substr(at_, length));
  if (!prefix.empty() && prefix != "r" && prefix != "u") throw SyntaxError{};
  at_ += length;
  const char quote = peek();
  const bool triple = peek(1) == quote && peek(2) == quote;
  const std::string closer(triple ? 3 : 1, quote);
  at_ += closer.size();
  std::string out;
  for (;;) {
    if (at_ >= text_.size()) throw SyntaxError{};
    if (text_.substr(at_).starts_with(closer)) break;
    const char c = text_[at_++];
    if (c == '\n' && !triple) throw SyntaxError{};
    if (c != '\\') {
      out.push_back(c);
    } else if (prefix == "r") {
      out.push_back(c);
      if (at_ >= text_.size()) throw SyntaxError{};
      out.push_back(text_[at_++]);
    } else {
      escape(out);
    }
  }
  at_ += closer.size();
  return out;
}

void Lexer::escape(std::string& out) {
  static constexpr std::string_view kLetters = "\\'\"abfnrtv";
  static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  if (at_ >= text_.size()) throw SyntaxError{};
  const char c = text_[at_++];
  const size_t known = kLetters.find(c);
  if (known != std::string_view::npos) {
    out.push_back(kMeanings[known]);
  } else if (c == '\n') {
    return;
  } else if (c == 'x' || c == 'u' || c == 'U') {
    append_utf8(out, code_point_escape(c == 'x' ? 2 : c == 'u' ? 4 : 8));
  } else if (c >= '0' && c <= '7') {
    --at_;
    append_utf8(out, octal_escape());
  } else if (c == 'N') {
    throw SyntaxError{};  // needs the Unicode name table
  } else {
    out.push_back('\\');
    out.push_back(c);
  }
}

char32_t Lexer::octal_escape() {
  char32_t value = 0;
  for (int i = 0; i < 3 && peek() >= '0' && peek() <= '7'; ++i) {
    value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
  }
  return value;
}

char32_t Lexer::code_point_escape(size_t length) {
  if (at_ + length > text_.size()) throw SyntaxError{};
  uint32_t value = 0;
  const char* end = text_.data() + at_ + length;
  const auto [stop, error] = std::from_chars(text_.data() + at_, end, value, 16);
  if (error != std::errc{} || stop != end || value > 0x10FFFF) throw SyntaxError{};
  at_ += length;
  return value >= 0xD800 && value <= 0xDFFF ? 0xFFFD : value;  // UTF-8 has no surrogates
}

}  // namespace kvarena::metrics::python
