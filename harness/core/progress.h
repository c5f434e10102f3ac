#pragma once
// Progress of a long task, on stderr: a bar with the time left on a terminal, else a line every few seconds.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

namespace kvarena {

/// "41 s", "3 min 05 s", "2 h 30 min"; at least a second.
[[nodiscard]] std::string duration_text(double seconds);

struct ProgressOptions {
  enum class Style { automatic, bar, lines, quiet };
  Style style = Style::automatic;  // automatic: bar when the stream is a terminal that can redraw a line
  std::FILE* stream = stderr;
  std::chrono::milliseconds line_interval{5000};  // lines: at most one in this time, the last one always
  std::chrono::milliseconds bar_interval{100};
  /// Seconds since any fixed moment; replaced in tests.
  std::function<double()> now;
};

/// Counts steps of a task. For one thread. NO_COLOR in the environment turns colours off; a quiet one prints nothing.
class Progress {
 public:
  explicit Progress(ProgressOptions options = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total` steps were there before, so they do not count for the speed. `cost_left` is the expected time of
  /// the others in any unit, where steps are unlike; absent: each is 1.
  void begin(std::string task, int64_t total, int64_t done = 0, std::optional<double> cost_left = {});
  /// `what` is at work now: "smollm2-135m, qasper, sample 3".
  void note(std::string what);
  /// Each of `steps` had the expected time `cost`.
  void advance(int64_t steps = 1, double cost = 1);
  /// Counts steps that took no time: they are given up.
  void skip(int64_t steps, double cost = 1);
  /// Takes the bar away, or prints the last line, and says how it went.
  void finish();
  /// Prints a line of its own without tearing the bar. Quiet prints it too: it is for warnings.
  void message(const std::string& line);

  /// "1 h 02 min", "3 min 20 s", "45 s": the time left at the present speed; "" before it can be known.
  [[nodiscard]] std::string time_left() const;

 private:
  void draw(bool last);
  void erase();

  ProgressOptions options_;
  std::string task_, what_;
  int64_t total_ = 0, done_ = 0;
  double cost_left_ = 0, cost_spent_ = 0;
  double began_ = 0, drawn_ = -1e9;
  bool active_ = false, colour_ = false, on_screen_ = false;
};

}  // namespace kvarena
