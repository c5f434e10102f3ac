#pragma once
// Characters, names, numbers and strings of Python source that stands inside brackets. Internal to python_calls.

#include <cstddef>
#include <string>
#include <string_view>

#include "metrics/algorithms/python_calls.h"

namespace kvarena::metrics::python {

/// Where Python's parser would refuse the text, or ours does not go. Never leaves the parser.
struct SyntaxError {};

/// Reads tokens from the front of a text; blanks, line ends and comments before a token are skipped. Everything that
/// cannot be read throws SyntaxError.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

 protected:
  [[nodiscard]] bool at_end();
  [[nodiscard]] char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void skip_blanks();
  bool accept(std::string_view token);
  void expect(std::string_view token);
  bool accept_word(std::string_view word);
  [[nodiscard]] bool next_is(std::string_view token);
  /// A name or keyword; empty when something else comes next.
  std::string_view identifier();

  [[nodiscard]] bool number_starts() const;
  PythonValue number();
  [[nodiscard]] bool string_starts() const;
  /// Adjoining literals are one string.
  PythonValue strings();

  [[nodiscard]] size_t position() const { return at_; }
  void go_back_to(size_t position) { at_ = position; }

 private:
  [[nodiscard]] size_t prefix_length() const;
  std::string digits(int base);
  PythonValue decimal_number();
  std::string one_string();
  void escape(std::string& out);
  char32_t octal_escape();
  char32_t code_point_escape(size_t length);

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace kvarena::metrics::python
