#include <algorithm>
#include <array>

#include "metrics/algorithms/python_ast.h"
#include "metrics/algorithms/python_lexer.h"

namespace kvarena::metrics::python {
namespace {

constexpr int kMaxDepth = 200;   // CPython's tokenizer refuses deeper nesting of brackets
constexpr int kMaxLinks = 3000;  // operators and postfixes in all: each makes the tree one deeper, and trees are walked

constexpr std::array<std::string_view, 35> kKeywords = {
    "False",  "None",     "True", "and",    "as",   "assert",  "async",  "await",  "break", "class",  "continue", "def",
    "del",    "elif",     "else", "except", "for",  "finally", "from",   "global", "if",    "import", "in",       "is",
    "lambda", "nonlocal", "not",  "or",     "pass", "raise",   "return", "try",    "while", "with",   "yield"};

bool is_keyword(std::string_view word) {
  return std::find(kKeywords.begin(), kKeywords.end(), word) != kKeywords.end();
}

class Parser : private Lexer {
 public:
  using Lexer::Lexer;

  std::vector<Node> whole_list() {
    expect("[");
    std::vector<Node> elements = sequence("]");
    if (!at_end()) throw SyntaxError{};
    return elements;
  }

 private:
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
      if (!next_is("...") && accept(".")) {
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
      const size_t start = position();
      const std::string_view word = identifier();
      if (!word.empty() && next_is("=") && !next_is("==")) {
        if (is_keyword(word)) throw SyntaxError{};
        expect("=");
        node.key_names.emplace_back(word);
        node.key_values.push_back(binary(0));
        keyword_seen = true;
      } else {
        go_back_to(start);
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
    if (number_starts()) return constant(number());
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

}  // namespace kvarena::metrics::python
