#pragma once
// JSON as users write it, with errors that say where.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "harness/core/parameters.h"

namespace kvarena {

/// Throws UserError: syntax errors with line and column, keys written twice (which JSON readers silently drop), nesting
/// beyond any use. `place` is the file.
[[nodiscard]] nlohmann::json parse_json(const std::string& text, const std::string& place);

/// How many brackets are open outside of strings, as the characters of JSON text go by.
class BracketDepth {
 public:
  int64_t after(char c) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      --depth_;
    }
    return depth_;
  }

 private:
  int64_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

/// Whether brackets outside of strings nest more than 500 deep, beyond any real data: values are copied, compared and
/// written by recursion, which must not overflow the stack.
[[nodiscard]] bool nests_deeply(std::string_view text);
/// Throws UserError when nests_deeply(text).
void require_shallow(std::string_view text, const std::string& place);

/// A value as JSON text, indented by `indent` unless negative; bytes that are no UTF-8, which models do produce, become
/// U+FFFD.
[[nodiscard]] std::string json_text(const nlohmann::json& value, int indent = -1);
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// A short form of a value for messages: at most some eighty bytes.
[[nodiscard]] std::string brief(const nlohmann::json& value);

/// The present values of the declared parameters as a JSON object; those that are not set are left out.
[[nodiscard]] nlohmann::json parameter_values(const std::function<void(ParameterVisitor&)>& declare);

}  // namespace kvarena
