#include "harness/model/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "harness/core/error.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena::jinja {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";
constexpr std::array<std::string_view, 27> kMarks = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                                     "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                                     "]",  "{",  "}",  ",",  ":",  ".",  "|", ";", "!"};

bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view program) : program_(program) {
    if (program_.ends_with('\n')) program_.remove_suffix(1);
  }

  std::vector<Token> read() {
    while (at_ < program_.size()) {
      const size_t tag = next_tag();
      read_text(tag);
      if (tag == program_.size()) break;
      read_tag();
    }
    push(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  void push(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }

  void advance(size_t to) {
    line_ += static_cast<int>(std::count(program_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         program_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  [[nodiscard]] char peek(size_t offset) const {
    return at_ + offset < program_.size() ? program_[at_ + offset] : '\0';
  }
  [[nodiscard]] bool ahead(std::string_view text) const { return program_.substr(at_).starts_with(text); }

  [[nodiscard]] size_t next_tag() const {
    for (size_t at = at_; at + 1 < program_.size(); ++at) {
      if (program_[at] != '{') continue;
      const char kind = program_[at + 1];
      if (kind == '{' || kind == '%' || kind == '#') return at;
    }
    return program_.size();
  }

  /// Text up to a tag, less the white space that the tags at both of its ends take.
  void read_text(size_t tag) {
    std::string_view text = program_.substr(at_, tag - at_);
    if (tag < program_.size()) {
      const char sign = tag + 2 < program_.size() ? program_[tag + 2] : '\0';
      if (sign == '-') {
        text = text.substr(0, text.find_last_not_of(kSpace) + 1);
      } else if (program_[tag + 1] != '{' && sign != '+') {
        text = without_indentation(text);
      }
    }
    if (strip_ == Strip::all) {
      const size_t begin = text.find_first_not_of(kSpace);
      text = begin == std::string_view::npos ? std::string_view() : text.substr(begin);
    } else if (strip_ == Strip::newline && text.starts_with('\n')) {
      text.remove_prefix(1);
    }
    strip_ = Strip::nothing;
    if (!text.empty()) push(TokenKind::text, std::string(text));
    advance(tag);
  }

  /// lstrip_blocks: white space between the beginning of a line and a block goes.
  [[nodiscard]] std::string_view without_indentation(std::string_view text) const {
    const size_t last = text.find_last_not_of(" \t\r\f\v");
    if (last == std::string_view::npos) return at_ == 0 ? std::string_view() : text;
    return text[last] == '\n' ? text.substr(0, last + 1) : text;
  }

  void read_tag() {
    const char kind = program_[at_ + 1];
    if (kind == '#') return skip_comment();
    const bool block = kind == '%';
    const int line = line_;
    push(block ? TokenKind::block_begin : TokenKind::print_begin, "");
    advance(at_ + 2);
    if (peek(0) == '-' || peek(0) == '+') advance(at_ + 1);
    if (block && read_raw()) return;
    read_words(block ? "%}" : "}}", line);
    push(block ? TokenKind::block_end : TokenKind::print_end, "");
    close(block ? "%}" : "}}");
  }

  /// Takes the end of a tag, before which there may be a sign.
  void close(std::string_view end) {
    const char sign = peek(0);
    if (sign == '-' || sign == '+') advance(at_ + 1);
    advance(at_ + end.size());
    strip_ = sign == '-' ? Strip::all : sign == '+' || end == "}}" ? Strip::nothing : Strip::newline;
  }

  void skip_comment() {
    const size_t end = program_.find("#}", at_ + 2);
    if (end == std::string_view::npos) fail_at(line_, "a comment that does not end", "#}");
    const bool all = program_[end - 1] == '-' && end - 1 > at_ + 1;
    advance(end + 2);
    strip_ = all ? Strip::all : Strip::newline;
  }

  /// {% raw %} ... {% endraw %} is text. Whether the block that begins here is one.
  bool read_raw() {
    const size_t word = program_.find_first_not_of(kSpace, at_);
    if (word == std::string_view::npos || !program_.substr(word).starts_with("raw")) return false;
    const size_t end = program_.find_first_not_of(kSpace, word + 3);
    if (end == std::string_view::npos ||
        !(program_.substr(end).starts_with("%}") || program_.substr(end).starts_with("-%}"))) {
      return false;
    }
    tokens_.pop_back();
    advance(end);
    close("%}");
    const size_t close_tag = program_.find("endraw", at_);
    const size_t open = close_tag == std::string_view::npos ? close_tag : program_.rfind("{%", close_tag);
    if (open == std::string_view::npos || open < at_) fail_at(line_, "a raw block that does not end", "{% endraw %}");
    read_text(open);
    advance(close_tag + std::string_view("endraw").size());
    advance(std::min(program_.find_first_not_of(kSpace, at_), program_.size()));
    close("%}");
    return true;
  }

  void read_words(std::string_view end, int line) {
    int depth = 0;  // of braces, whose end may look like the tag's
    while (true) {
      advance(std::min(program_.find_first_not_of(kSpace, at_), program_.size()));
      if (at_ == program_.size()) fail_at(line, "a tag that does not end", std::string(end));
      const bool sign = (peek(0) == '-' || peek(0) == '+') && program_.substr(at_ + 1).starts_with(end);
      if (depth == 0 && (sign || ahead(end))) return;
      depth += peek(0) == '{' ? 1 : peek(0) == '}' ? -1 : 0;
      read_word();
    }
  }

  void read_word() {
    const char c = peek(0);
    if (starts_name(c)) return read_while(TokenKind::name, [](char x) { return starts_name(x) || is_digit(x); });
    if (is_digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_string(c);
    for (const std::string_view mark : kMarks) {
      if (!ahead(mark)) continue;
      push(TokenKind::mark, std::string(mark));
      return advance(at_ + mark.size());
    }
    fail_at(line_, fmt::format("the character \"{}\"", c), "an expression");
  }

  template <class Member>
  void read_while(TokenKind kind, Member member) {
    size_t end = at_;
    while (end < program_.size() && member(program_[end])) ++end;
    push(kind, std::string(program_.substr(at_, end - at_)));
    advance(end);
  }

  void read_number() {
    size_t end = at_;
    while (end < program_.size() && (is_digit(program_[end]) || program_[end] == '_')) ++end;
    TokenKind kind = TokenKind::integer;
    if (end + 1 < program_.size() && program_[end] == '.' && is_digit(program_[end + 1])) {
      kind = TokenKind::real;
      for (++end; end < program_.size() && is_digit(program_[end]);) ++end;
    }
    std::string text(program_.substr(at_, end - at_));
    std::erase(text, '_');
    push(kind, std::move(text));
    advance(end);
  }

  void read_string(char quote) {
    const int line = line_;
    std::string text;
    size_t at = at_ + 1;
    for (; at < program_.size() && program_[at] != quote; ++at) {
      if (program_[at] == '\\' && at + 1 < program_.size()) {
        at = read_escape(at + 1, text);
      } else {
        text += program_[at];
      }
    }
    if (at >= program_.size()) fail_at(line, "a string that does not end", std::string(1, quote));
    push(TokenKind::string, std::move(text));
    advance(at + 1);
  }

  /// Appends what the escape after a backslash stands for. Returns the place of its last character.
  size_t read_escape(size_t at, std::string& text) const {
    const char c = program_[at];
    const auto code = [&](size_t digits) {
      const std::string hex(program_.substr(at + 1, digits));
      if (hex.size() == digits && hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos) {
        append_utf8(text, static_cast<uint32_t>(std::stoul(hex, nullptr, 16)));
        return at + digits;
      }
      text += {'\\', c};
      return at;
    };
    switch (c) {
      case 'n': text += '\n'; return at;
      case 't': text += '\t'; return at;
      case 'r': text += '\r'; return at;
      case '\n': return at;
      case '\\':
      case '\'':
      case '"': text += c; return at;
      case 'x': return code(2);
      case 'u': return code(4);
      case 'U': return code(8);
      default: text += {'\\', c}; return at;
    }
  }

  enum class Strip : uint8_t { nothing, newline, all };

  std::string_view program_;
  size_t at_ = 0;
  int line_ = 1;
  Strip strip_ = Strip::nothing;  // what the tag before takes of the text that follows
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view program) { return Lexer(program).read(); }

void fail_at(int line, std::string found, std::string expected) {
  fail({.place = fmt::format("chat template, line {}", line),
        .found = std::move(found),
        .expected = std::move(expected),
        .action = "\"template\" beside the model's name chooses another"});
}

}  // namespace kvarena::jinja
