#pragma once
// Expressions of Jinja's grammar, and the tokens that are left to be read.

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/model/jinja/lexer.h"
#include "harness/model/jinja/nodes.h"

namespace kvarena::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string_view program) : tokens_(tokens_of(program)) {}

  [[nodiscard]] const Token& token() const { return tokens_[at_]; }
  [[nodiscard]] const Token& next_token() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[nodiscard]] bool is(TokenKind kind) const { return token().kind == kind; }
  [[nodiscard]] bool is_mark(std::string_view text) const { return is(TokenKind::mark) && token().text == text; }
  [[nodiscard]] bool is_word(std::string_view text) const { return is(TokenKind::name) && token().text == text; }
  const Token& take() { return tokens_[at_++]; }

  bool take_mark(std::string_view text) {
    const bool found = is_mark(text);
    at_ += found ? 1 : 0;
    return found;
  }
  bool take_word(std::string_view text) {
    const bool found = is_word(text);
    at_ += found ? 1 : 0;
    return found;
  }
  void need_mark(std::string_view text) {
    if (!take_mark(text)) fail_here(fmt::format("\"{}\"", text));
  }
  void need_word(std::string_view text) {
    if (!take_word(text)) fail_here(fmt::format("\"{}\"", text));
  }
  std::string need_name() {
    if (!is(TokenKind::name)) fail_here("a name");
    return take().text;
  }
  void end_of_tag() {
    if (!is(TokenKind::block_end)) fail_here("the end of the tag");
    ++at_;
  }

  /// Throws UserError naming what stands here.
  [[noreturn]] void fail_here(std::string expected) const;

  /// Counts tags and brackets inside of one another; a hostile file has more than a stack holds.
  class Depth {
   public:
    explicit Depth(ExpressionParser& parser) : parser_(&parser) {
      constexpr int kDeepest = 200;
      if (parser.depth_ == kDeepest) parser.fail_here("fewer tags and brackets inside of one another");
      ++parser.depth_;
    }
    ~Depth() { --parser_->depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    ExpressionParser* parser_;
  };

  /// One expression, or several with commas between them, which make a list.
  ExpressionPtr parse_list_or_one(bool conditional = true);
  ExpressionPtr parse_expression();
  ExpressionPtr parse_member(ExpressionPtr of);
  /// Arguments after the opening bracket, and the closing one.
  CallArguments parse_arguments();
  ExpressionPtr parse_primary();

  std::vector<Token> tokens_;
  size_t at_ = 0;

 private:
  using Operand = ExpressionPtr (ExpressionParser::*)();

  static ExpressionPtr operation(int line, std::string sign, ExpressionPtr left, ExpressionPtr right);
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  /// The sign of a comparison that stands here; empty where none does.
  std::string take_comparison();
  ExpressionPtr parse_comparison();
  /// Operands with one of `signs` between them, from left to right.
  ExpressionPtr parse_chain(std::initializer_list<std::string_view> signs, Operand operand);
  ExpressionPtr parse_sum();
  ExpressionPtr parse_joined();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_operand();
  ExpressionPtr parse_unary(bool filtered);
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_call(ExpressionPtr callee);
  /// Filters, tests and calls behind a value.
  ExpressionPtr parse_filtered(ExpressionPtr value);
  ExpressionPtr parse_test(ExpressionPtr of);
  static ExpressionPtr parse_name(const Token& name);
  ExpressionPtr parse_bracket(int line);
  ExpressionPtr parse_list(int line);
  ExpressionPtr parse_dict(int line);

  int depth_ = 0;
};

}  // namespace kvarena::jinja
