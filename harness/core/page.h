#pragma once
// Output of a command before it is laid out: line width and bold depend on the terminal.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kvarena {

using Rows = std::vector<std::vector<std::string>>;

class Page {
 public:
  /// Adds text as it is.
  Page& text(std::string_view text);
  /// Adds text in bold, where the terminal shows it.
  Page& bold(std::string_view text);
  /// Adds text broken at blanks: lines after the first begin with `indent` blanks, the first is `used` characters in.
  Page& wrapped(std::string_view text, size_t indent = 0, size_t used = 0);
  /// Adds rows in aligned columns, the last one wrapped.
  Page& columns(Rows rows);
  /// Adds rows of a line and its meaning: side by side where they fit, otherwise each meaning below its line.
  Page& examples(Rows rows);
  Page& append(const Page& page);

  [[nodiscard]] std::string layout(size_t width, bool with_bold) const;

 private:
  struct Text {
    std::string text;
  };
  struct Bold {
    std::string text;
  };
  struct Wrapped {
    std::string text;
    size_t indent, used;
  };
  struct Columns {
    Rows rows;
  };
  struct Examples {
    Rows rows;
  };
  struct Layout;

  std::vector<std::variant<Text, Bold, Wrapped, Columns, Examples>> parts_;
};

/// Lays a page out for standard output and writes it. Throws UserError when that fails (a full disk).
void print(const Page& page);
/// Writes text that is laid out already, or needs no layout. Throws as above.
void print(std::string_view text);
/// Flushes standard output. Throws like print().
void flush_output();

}  // namespace kvarena
