#pragma once
// Words of a Jinja program, with white space around blocks taken away as transformers' environment does: trim_blocks,
// lstrip_blocks, and without the newline at the end of the program.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::jinja {

enum class TokenKind : uint8_t {
  text,         // outside of tags
  block_begin,  // {%
  block_end,
  print_begin,  // {{
  print_end,
  name,
  string,
  integer,
  real,
  mark,  // an operator or a bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // of a string: its characters
  int line = 1;
};

/// Ends with a token of kind end. Throws UserError with the line for a tag or a string that does not end, and for
/// characters that are no part of the language.
[[nodiscard]] std::vector<Token> tokens_of(std::string_view program);

/// Throws UserError: "chat template, line N: found F, expected E", and how to choose another template.
[[noreturn]] void fail_at(int line, std::string found, std::string expected);

}  // namespace kvarena::jinja
