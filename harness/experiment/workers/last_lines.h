#pragma once
// The last lines that a process printed.

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace kvarena::experiment {

/// Cuts a stream into lines, hands each on and remembers the last ones. Longer lines are cut in two.
class LastLines {
 public:
  static constexpr size_t kRemembered = 20;
  static constexpr size_t kLongest = 2000;  // bytes

  explicit LastLines(std::function<void(const std::string&)> on_line) : on_line_(std::move(on_line)) {}

  void append(std::string_view bytes);
  /// Ends the last line, if it is incomplete.
  void finish();
  /// The last lines, oldest first.
  [[nodiscard]] std::string text() const;
  /// The newest line; "" before the first has ended.
  [[nodiscard]] std::string last() const { return lines_.empty() ? "" : lines_.back(); }

 private:
  void end_line();

  std::function<void(const std::string&)> on_line_;
  std::string begun_;
  std::deque<std::string> lines_;
};

}  // namespace kvarena::experiment
