#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "metrics/algorithms/python_ast.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::python {
namespace {

struct SyntaxError {};  // never leaves this file

constexpr int kMaxDepth = 200;   // CPython's tokenizer refuses deeper nesting of brackets
constexpr int kMaxLinks = 3000;  // operators and postfixes in all: each makes the tree one deeper, and trees are walked

constexpr std::array<std::string_view, 35> kKeywords = {
    "False",  "None",     "True", "and",    "as",   "assert",  "async",  "await",  "break", "class",  "continue", "def",
    "del",    "elif",     "else", "except", "for",  "finally", "from",   "global", "if",    "import", "in",       "is",
    "lambda", "nonlocal", "not",  "or",     "pass", "raise",   "return", "try",    "while", "with",   "yield"};

bool is_keyword(std::string_view word) {
  return std::find(kKeywords.begin(), kKeywords.end(), word) != kKeywords.end();
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<Node> whole_list() {
    expect("[");
    std::vector<Node> elements = sequence("]");
    skip_blanks();
    if (at_ != text_.size()) throw SyntaxError{};
    return elements;
  }

 private:
  // --- characters ---
  [[nodiscard]] char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  // Everything stands inside brackets, where line ends and comments are blanks.
  void skip_blanks() {
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

  bool accept(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) throw SyntaxError{};
  }

  bool accept_word(std::string_view word) {
    const size_t start = at_;
    if (identifier() == word) return true;
    at_ = start;
    return false;
  }

  bool next_is(std::string_view token) {
    skip_blanks();
    return text_.substr(at_).starts_with(token);
  }

  std::string_view identifier() {
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

  // --- grammar ---
  struct Depth {
    explicit Depth(int& depth) : depth_(depth) {
      if (++depth_ > kMaxDepth) throw SyntaxError{};
    }
    ~Depth() { --depth_; }
    int& depth_;
  };

  // Elements up to `closer`, which is consumed; a trailing comma is allowed.
  std::vector<Node> sequence(std::string_view closer, bool* comma_seen = nullptr) {
    const Depth depth(depth_);
    std::vector<Node> elements;
    while (!accept(closer)) {
      elements.push_back(binary(0));
      if (accept(",")) {
        if (comma_seen != nullptr) *comma_seen = true;
        continue;
      }
      expect(closer);
      break;
    }
    return elements;
  }

  // Operators from loosest to tightest; all are left-associative.
  std::string_view binary_operator(int level) {
    static constexpr std::array<std::array<std::string_view, 5>, 6> kLevels = {
        {{"|"}, {"^"}, {"&"}, {"<<", ">>"}, {"+", "-"}, {"//", "*", "/", "%", "@"}}};
    for (const std::string_view op : kLevels[static_cast<size_t>(level)]) {
      if (op.empty()) break;
      if (op == "*" && next_is("**")) continue;
      if (accept(op)) return op;
    }
    return {};
  }

  Node binary(int level) {
    if (level == 6) return unary();
    Node left = binary(level + 1);
    for (std::string_view op; !(op = binary_operator(level)).empty();) {
      Node node = wrap(Node::Kind::binary, std::string(op), std::move(left));
      node.children.push_back(binary(level + 1));
      left = std::move(node);
    }
    return left;
  }

  Node unary() {
    const Depth depth(depth_);
    if (accept_word("not")) return wrap(Node::Kind::unary, "not ", unary());
    for (const std::string_view op : {"-", "+", "~"}) {
      if (accept(op)) return wrap(Node::Kind::unary, std::string(op), unary());
    }
    return power();
  }

  Node power() {
    Node base = primary();
    if (!accept("**")) return base;
    Node node = wrap(Node::Kind::binary, "**", std::move(base));
    node.children.push_back(unary());
    return node;
  }

  Node primary() {
    Node node = atom();
    for (;;) {
      skip_blanks();
      if (peek() == '.' && !next_is("...")) {
        ++at_;
        const std::string_view word = identifier();
        if (word.empty() || is_keyword(word)) throw SyntaxError{};
        node = wrap(Node::Kind::attribute, std::string(word), std::move(node));
      } else if (accept("(")) {
        node = call(std::move(node));
      } else if (accept("[")) {
        Node index = subscript_index();
        node = wrap(Node::Kind::subscript, {}, std::move(node));
        node.children.push_back(std::move(index));
      } else {
        return node;
      }
    }
  }

  Node wrap(Node::Kind kind, std::string text, Node child) {
    if (++links_ > kMaxLinks) throw SyntaxError{};
    Node node{.kind = kind, .text = std::move(text)};
    node.children.push_back(std::move(child));
    return node;
  }

  Node subscript_index() {
    bool comma = false;
    std::vector<Node> elements = sequence("]", &comma);
    if (elements.empty()) throw SyntaxError{};
    if (!comma) return std::move(elements.front());
    return {.kind = Node::Kind::tuple, .children = std::move(elements)};
  }

  Node call(Node function) {
    const Depth depth(depth_);
    Node node = wrap(Node::Kind::call, {}, std::move(function));
    bool keyword_seen = false;
    while (!accept(")")) {
      const size_t start = at_;
      const std::string_view word = identifier();
      if (!word.empty() && next_is("=") && !next_is("==")) {
        if (is_keyword(word)) throw SyntaxError{};
        expect("=");
        node.key_names.emplace_back(word);
        node.key_values.push_back(binary(0));
        keyword_seen = true;
      } else {
        at_ = start;
        const bool starred = !next_is("**") && accept("*");  // may follow keywords
        if (keyword_seen && !starred) throw SyntaxError{};
        node.children.push_back(binary(0));
      }
      if (accept(",")) continue;
      expect(")");
      break;
    }
    return node;
  }

  Node atom() {
    skip_blanks();
    if (accept("[")) return {.kind = Node::Kind::list, .children = sequence("]")};
    if (accept("(")) return parenthesis();
    if (accept("{")) return dict();
    if (accept("...")) return {.kind = Node::Kind::ellipsis};
    const char c = peek();
    if ((c >= '0' && c <= '9') || (c == '.' && peek(1) >= '0' && peek(1) <= '9')) return constant(number());
    if (string_starts()) return constant(strings());
    const std::string_view word = identifier();
    if (word == "True" || word == "False") {
      return constant({.type = PythonValue::Type::boolean, .boolean = word == "True"});
    }
    if (word == "None") return constant({});
    if (word.empty() || is_keyword(word)) throw SyntaxError{};
    return {.kind = Node::Kind::name, .text = std::string(word)};
  }

  static Node constant(PythonValue value) { return {.kind = Node::Kind::constant, .value = std::move(value)}; }

  Node parenthesis() {
    bool comma = false;
    std::vector<Node> elements = sequence(")", &comma);
    if (elements.size() == 1 && !comma) return std::move(elements.front());
    return {.kind = Node::Kind::tuple, .children = std::move(elements)};
  }

  Node dict() {
    const Depth depth(depth_);
    Node node{.kind = Node::Kind::dict};
    while (!accept("}")) {
      node.children.push_back(binary(0));
      expect(":");
      node.children.push_back(binary(0));
      if (accept(",")) continue;
      expect("}");
      break;
    }
    return node;
  }

  // --- numbers ---
  // Digits of `base` with single underscores between them.
  std::string digits(int base) {
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

  static PythonValue integer(const std::string& text, int base) {
    PythonValue value{.type = PythonValue::Type::integer};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.integer, base);
    if (error == std::errc{}) return value;
    value.big = true;
    for (const char c : text) value.real = value.real * base + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    return value;
  }

  PythonValue number() {
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

  PythonValue decimal_number() {
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

  // --- strings ---
  [[nodiscard]] size_t prefix_length() const {
    size_t n = 0;
    while (n < 2 && std::string_view("rRuUbBfF").find(peek(n)) != std::string_view::npos && peek(n) != '\0') ++n;
    return n;
  }

  [[nodiscard]] bool string_starts() const {
    const char c = peek(prefix_length());
    return c == '"' || c == '\'';
  }

  // Adjoining literals are one string.
  PythonValue strings() {
    PythonValue value{.type = PythonValue::Type::string};
    do {
      value.string += one_string();
      skip_blanks();
    } while (string_starts());
    return value;
  }

  std::string one_string() {
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

  void escape(std::string& out) {
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

  char32_t octal_escape() {
    char32_t value = 0;
    for (int i = 0; i < 3 && peek() >= '0' && peek() <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
    }
    return value;
  }

  char32_t code_point_escape(size_t length) {
    if (at_ + length > text_.size()) throw SyntaxError{};
    uint32_t value = 0;
    const char* end = text_.data() + at_ + length;
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, value, 16);
    if (error != std::errc{} || stop != end || value > 0x10FFFF) throw SyntaxError{};
    at_ += length;
    return value >= 0xD800 && value <= 0xDFFF ? 0xFFFD : value;  // UTF-8 has no surrogates
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  int links_ = 0;
};

}  // namespace

std::optional<std::vector<Node>> parse_list(std::string_view text) {
  try {
    return Parser(text).whole_list();
  } catch (const SyntaxError&) {
    return std::nullopt;
  }
}

}  // namespace kvarena::python
