#include "harness/model/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/model/jinja/expression_parser.h"

namespace kvarena::jinja {
namespace {

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view program) : ExpressionParser(program) {}

  Block parse_program() {
    Block block = parse_block({});
    if (!is(TokenKind::end)) fail_here("the end of the program");
    return block;
  }

 private:
  /// Statements up to a tag that begins with one of `ends`, whose word is left to be read.
  Block parse_block(const std::vector<std::string_view>& ends) {
    Block block;
    while (!is(TokenKind::end)) {
      if (is(TokenKind::text)) {
        const Token& text = take();
        block.push_back(std::make_unique<Text>(text.line, text.text));
      } else if (is(TokenKind::print_begin)) {
        const int line = take().line;
        block.push_back(std::make_unique<Print>(line, parse_list_or_one()));
        if (!is(TokenKind::print_end)) fail_here("\"}}\"");
        ++at_;
      } else {
        ++at_;
        if (std::ranges::any_of(ends, [&](std::string_view end) { return is_word(end); })) return block;
        block.push_back(parse_statement());
      }
    }
    if (!ends.empty()) fail_here(fmt::format("\"{{% {} %}}\"", ends.back()));
    return block;
  }

  StatementPtr parse_statement() {
    const int line = token().line;
    const Depth depth(*this);
    const std::string word = need_name();
    if (word == "if") return parse_if(line);
    if (word == "for") return parse_for(line);
    if (word == "set") return parse_set(line);
    if (word == "macro") return parse_macro(line);
    if (word == "call") return parse_call_block(line);
    if (word == "filter") return parse_filter_block(line);
    if (word == "with" || word == "generation") return parse_with(line, word);
    if (word == "break" || word == "continue") {
      end_of_tag();
      return std::make_unique<Jump>(line, word == "break" ? Flow::leave : Flow::next_turn);
    }
    if (word == "do") {
      auto silent = std::make_unique<Set>(line);
      silent->value = parse_expression();
      end_of_tag();
      return silent;
    }
    fail_at(line, fmt::format("the tag \"{}\"", word), "if, for, set, macro, call, filter, with, break or continue");
  }

  StatementPtr parse_if(int line) {
    auto node = std::make_unique<If>(line);
    do {
      ExpressionPtr condition = parse_expression();
      end_of_tag();
      node->branches.emplace_back(std::move(condition), parse_block({"elif", "else", "endif"}));
    } while (take_word("elif"));
    if (take_word("else")) {
      end_of_tag();
      node->otherwise = parse_block({"endif"});
    }
    need_word("endif");
    end_of_tag();
    return node;
  }

  StatementPtr parse_for(int line) {
    auto node = std::make_unique<For>(line);
    node->targets = parse_targets();
    need_word("in");
    node->items = parse_list_or_one(/*conditional=*/false);
    if (take_word("if")) node->condition = parse_expression();
    take_word("recursive");
    end_of_tag();
    node->body = parse_block({"else", "endfor"});
    if (take_word("else")) {
      end_of_tag();
      node->otherwise = parse_block({"endfor"});
    }
    need_word("endfor");
    end_of_tag();
    return node;
  }

  std::vector<std::string> parse_targets() {
    const bool bracket = take_mark("(");
    std::vector<std::string> names{need_name()};
    while (take_mark(",")) names.push_back(need_name());
    if (bracket) need_mark(")");
    return names;
  }

  StatementPtr parse_set(int line) {
    auto node = std::make_unique<Set>(line);
    node->targets = parse_targets();
    if (take_mark(".")) node->member = need_name();
    if (take_mark("=")) {
      node->value = parse_list_or_one();
      end_of_tag();
      return node;
    }
    if (take_mark("|")) node->filters = parse_filters();
    end_of_tag();
    node->body = parse_block({"endset"});
    need_word("endset");
    end_of_tag();
    return node;
  }

  void parse_parameters(Macro& macro) {
    need_mark("(");
    while (!take_mark(")")) {
      std::string name = need_name();
      macro.parameters.emplace_back(std::move(name), take_mark("=") ? parse_expression() : nullptr);
      if (!is_mark(")")) need_mark(",");
    }
  }

  StatementPtr parse_macro(int line) {
    auto node = std::make_unique<Macro>(line);
    node->name = need_name();
    parse_parameters(*node);
    end_of_tag();
    node->body = parse_block({"endmacro"});
    need_word("endmacro");
    if (is(TokenKind::name)) ++at_;
    end_of_tag();
    return node;
  }

  StatementPtr parse_call_block(int line) {
    auto node = std::make_unique<CallBlock>(line);
    if (is_mark("(")) parse_parameters(node->caller);
    ExpressionPtr callee = parse_primary();
    while (is_mark(".") || is_mark("[")) callee = parse_member(std::move(callee));
    node->call = std::make_unique<Call>(line);
    node->call->callee = std::move(callee);
    need_mark("(");
    node->call->arguments = parse_arguments();
    end_of_tag();
    node->caller.body = parse_block({"endcall"});
    need_word("endcall");
    end_of_tag();
    return node;
  }

  StatementPtr parse_filter_block(int line) {
    auto node = std::make_unique<FilterBlock>(line);
    node->filters = parse_filters();
    end_of_tag();
    node->body = parse_block({"endfilter"});
    need_word("endfilter");
    end_of_tag();
    return node;
  }

  StatementPtr parse_with(int line, const std::string& word) {
    auto node = std::make_unique<With>(line);
    while (!is(TokenKind::block_end)) {
      std::string name = need_name();
      need_mark("=");
      node->names.emplace_back(std::move(name), parse_expression());
      if (!is(TokenKind::block_end)) need_mark(",");
    }
    end_of_tag();
    const std::string end = "end" + word;
    node->body = parse_block({end});
    need_word(end);
    end_of_tag();
    return node;
  }

  /// name(arguments) | name ...: filters of a block, the first without its mark.
  std::vector<std::pair<std::string, CallArguments>> parse_filters() {
    std::vector<std::pair<std::string, CallArguments>> filters;
    do {
      std::string name = need_name();
      filters.emplace_back(std::move(name), take_mark("(") ? parse_arguments() : CallArguments{});
    } while (take_mark("|"));
    return filters;
  }
};

}  // namespace

Block parse(std::string_view program) { return Parser(program).parse_program(); }

}  // namespace kvarena::jinja
