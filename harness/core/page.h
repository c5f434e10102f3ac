#pragma once
// What a command says, before it is known how wide a line is and whether bold shows. A page can be kept and laid out
// for another terminal later.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kvarena {

using Rows = std::vector<std::vector<std::string>>;

class Page {
 public:
  /// As it is.
  Page& text(std::string_view text);
  /// Emphasised where that shows.
  Page& bold(std::string_view text);
  /// Broken at blanks: lines after the first begin with `indent` blanks, the first is `used` characters in.
  Page& wrapped(std::string_view text, size_t indent = 0, size_t used = 0);
  /// Aligned columns, the last one wrapped.
  Page& columns(Rows rows);
  /// Rows of a line and its meaning: side by side where they fit, otherwise each meaning below its line.
  Page& examples(Rows rows);
  Page& append(const Page& page);

  [[nodiscard]] std::string layout(size_t width, bool with_bold) const;

  /// [["bold", "Usage"], ["columns", [["a", "b"]]], ...]
  [[nodiscard]] nlohmann::json to_json() const;
  /// What to_json() gave; anything else throws nlohmann's exceptions.
  [[nodiscard]] static Page from_json(const nlohmann::json& parts);

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
  struct ToJson;

  std::vector<std::variant<Text, Bold, Wrapped, Columns, Examples>> parts_;
};

/// Writes to standard output as it is laid out there. Throws UserError when that fails (a full disk).
void print(const Page& page);
/// The same for text that is laid out already, or needs no layout.
void print(std::string_view text);
/// Pushes out what was printed, at once. Throws like print().
void flush_output();

/// While it lives, what is printed is kept instead. One at a time, for a program of one thread.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  [[nodiscard]] const Page& page() const { return page_; }

 private:
  Page page_;
};

}  // namespace kvarena
