#include "harness/model/jinja/expression_parser.h"

#include <array>

namespace kvarena::jinja {

void ExpressionParser::fail_here(std::string expected) const {
  const bool words = is(TokenKind::name) || is(TokenKind::mark) || is(TokenKind::string) || is(TokenKind::integer);
  fail_at(token().line,
          words                ? fmt::format("\"{}\"", token().text)
          : is(TokenKind::end) ? "the end"
                               : "a tag",
          std::move(expected));
}

ExpressionPtr ExpressionParser::parse_list_or_one(bool conditional) {
  const int line = token().line;
  ExpressionPtr first = conditional ? parse_expression() : parse_or();
  if (!is_mark(",")) return first;
  auto list = std::make_unique<ListDisplay>(line);
  list->items.push_back(std::move(first));
  while (take_mark(",")) {
    if (is(TokenKind::block_end) || is(TokenKind::print_end) || is_mark(")")) break;
    list->items.push_back(conditional ? parse_expression() : parse_or());
  }
  return list;
}

ExpressionPtr ExpressionParser::parse_expression() {
  const Depth depth(*this);
  ExpressionPtr value = parse_or();
  while (is_word("if")) {
    auto node = std::make_unique<Conditional>(take().line);
    node->then = std::move(value);
    node->condition = parse_or();
    if (take_word("else")) node->otherwise = parse_expression();
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::operation(int line, std::string sign, ExpressionPtr left, ExpressionPtr right) {
  auto node = std::make_unique<Operation>(line);
  node->sign = std::move(sign);
  node->left = std::move(left);
  node->right = std::move(right);
  return node;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (is_word("or")) {
    const int line = take().line;
    left = operation(line, "or", std::move(left), parse_and());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (is_word("and")) {
    const int line = take().line;
    left = operation(line, "and", std::move(left), parse_not());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!is_word("not")) return parse_comparison();
  const Depth depth(*this);
  const int line = take().line;
  return operation(line, "not", nullptr, parse_not());
}

std::string ExpressionParser::take_comparison() {
  for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (take_mark(sign)) return std::string(sign);
  }
  if (take_word("in")) return "in";
  if (is_word("not") && next_token().kind == TokenKind::name && next_token().text == "in") {
    at_ += 2;
    return "not in";
  }
  return {};
}

ExpressionPtr ExpressionParser::parse_comparison() {
  const int line = token().line;
  ExpressionPtr first = parse_sum();
  std::vector<std::pair<std::string, ExpressionPtr>> rest;
  for (std::string sign = take_comparison(); !sign.empty(); sign = take_comparison()) {
    rest.emplace_back(sign, parse_sum());
  }
  if (rest.empty()) return first;
  auto node = std::make_unique<Comparison>(line);
  node->first = std::move(first);
  node->rest = std::move(rest);
  return node;
}

ExpressionPtr ExpressionParser::parse_chain(std::initializer_list<std::string_view> signs, Operand operand) {
  ExpressionPtr left = (this->*operand)();
  while (std::ranges::any_of(signs, [&](std::string_view sign) { return is_mark(sign); })) {
    const Token sign = take();
    left = operation(sign.line, sign.text, std::move(left), (this->*operand)());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_sum() { return parse_chain({"+", "-"}, &ExpressionParser::parse_joined); }
ExpressionPtr ExpressionParser::parse_joined() { return parse_chain({"~"}, &ExpressionParser::parse_product); }
ExpressionPtr ExpressionParser::parse_product() {
  return parse_chain({"*", "/", "//", "%"}, &ExpressionParser::parse_power);
}
ExpressionPtr ExpressionParser::parse_power() { return parse_chain({"**"}, &ExpressionParser::parse_operand); }

ExpressionPtr ExpressionParser::parse_operand() { return parse_unary(true); }

ExpressionPtr ExpressionParser::parse_unary(bool filtered) {
  if (is_mark("-") || is_mark("+")) {
    const Depth depth(*this);
    const Token sign = take();
    ExpressionPtr value = operation(sign.line, sign.text, nullptr, parse_unary(false));
    return filtered ? parse_filtered(std::move(value)) : std::move(value);
  }
  ExpressionPtr value = parse_postfix(parse_primary());
  return filtered ? parse_filtered(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  while (is_mark(".") || is_mark("[") || is_mark("(")) {
    value = is_mark("(") ? parse_call(std::move(value)) : parse_member(std::move(value));
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  auto node = std::make_unique<Call>(take().line);
  node->callee = std::move(callee);
  node->arguments = parse_arguments();
  return node;
}

ExpressionPtr ExpressionParser::parse_member(ExpressionPtr of) {
  const int line = token().line;
  if (take_mark(".")) {
    auto node = std::make_unique<Member>(line);
    node->of = std::move(of);
    node->dotted = !is(TokenKind::integer);
    node->key = node->dotted ? std::make_unique<Literal>(line, need_name())
                             : std::make_unique<Literal>(line, static_cast<int64_t>(std::stoll(take().text)));
    return node;
  }
  need_mark("[");
  ExpressionPtr first = is_mark(":") ? nullptr : parse_expression();
  if (!is_mark(":")) {
    need_mark("]");
    auto node = std::make_unique<Member>(line);
    node->of = std::move(of);
    node->key = std::move(first);
    return node;
  }
  auto node = std::make_unique<Slice>(line);
  node->of = std::move(of);
  node->start = std::move(first);
  need_mark(":");
  if (!is_mark("]") && !is_mark(":")) node->stop = parse_expression();
  if (take_mark(":") && !is_mark("]")) node->step = parse_expression();
  need_mark("]");
  return node;
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  while (!take_mark(")")) {
    if (is(TokenKind::name) && next_token().kind == TokenKind::mark && next_token().text == "=") {
      std::string name = take().text;
      ++at_;
      arguments.keyword.emplace_back(std::move(name), parse_expression());
    } else {
      arguments.positional.push_back(parse_expression());
    }
    if (!is_mark(")")) need_mark(",");
  }
  return arguments;
}

ExpressionPtr ExpressionParser::parse_filtered(ExpressionPtr value) {
  while (true) {
    if (take_mark("|")) {
      auto node = std::make_unique<Filter>(token().line);
      node->of = std::move(value);
      node->name = need_name();
      if (take_mark("(")) node->arguments = parse_arguments();
      value = std::move(node);
    } else if (take_word("is")) {
      value = parse_test(std::move(value));
    } else if (is_mark("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr of) {
  auto node = std::make_unique<Test>(token().line);
  node->of = std::move(of);
  node->negated = take_word("not");
  node->name = need_name();
  constexpr std::array<std::string_view, 6> kAfter = {"else", "or", "and", "if", "is", "in"};
  const bool operand =
      is(TokenKind::string) || is(TokenKind::integer) || is(TokenKind::real) || is_mark("[") || is_mark("{") ||
      (is(TokenKind::name) && std::ranges::find(kAfter, token().text) == kAfter.end() && token().text != "not");
  if (take_mark("(")) {
    node->arguments = parse_arguments();
  } else if (operand) {
    node->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token here = token();
  switch (here.kind) {
    case TokenKind::name: ++at_; return parse_name(here);
    case TokenKind::integer:
      ++at_;
      return std::make_unique<Literal>(here.line, static_cast<int64_t>(std::stoll(here.text)));
    case TokenKind::real: ++at_; return std::make_unique<Literal>(here.line, std::stod(here.text));
    case TokenKind::string: {
      std::string text;
      while (is(TokenKind::string)) text += take().text;
      return std::make_unique<Literal>(here.line, std::move(text));
    }
    default: break;
  }
  if (take_mark("(")) return parse_bracket(here.line);
  if (take_mark("[")) return parse_list(here.line);
  if (take_mark("{")) return parse_dict(here.line);
  fail_here("an expression");
}

ExpressionPtr ExpressionParser::parse_name(const Token& name) {
  if (name.text == "true" || name.text == "True") return std::make_unique<Literal>(name.line, true);
  if (name.text == "false" || name.text == "False") return std::make_unique<Literal>(name.line, false);
  if (name.text == "none" || name.text == "None") return std::make_unique<Literal>(name.line, nullptr);
  return std::make_unique<Name>(name.line, name.text);
}

ExpressionPtr ExpressionParser::parse_bracket(int line) {
  if (take_mark(")")) return std::make_unique<ListDisplay>(line);
  ExpressionPtr value = parse_list_or_one();
  need_mark(")");
  return value;
}

ExpressionPtr ExpressionParser::parse_list(int line) {
  auto node = std::make_unique<ListDisplay>(line);
  while (!take_mark("]")) {
    node->items.push_back(parse_expression());
    if (!is_mark("]")) need_mark(",");
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_dict(int line) {
  auto node = std::make_unique<DictDisplay>(line);
  while (!take_mark("}")) {
    ExpressionPtr key = parse_expression();
    need_mark(":");
    node->items.emplace_back(std::move(key), parse_expression());
    if (!is_mark("}")) need_mark(",");
  }
  return node;
}

}  // namespace kvarena::jinja
