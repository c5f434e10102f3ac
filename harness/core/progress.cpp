#include "harness/core/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace kvarena {
namespace {

using Style = ProgressOptions::Style;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool can_redraw(std::FILE* stream) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(::fileno(stream)) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

/// Columns of the terminal; 80 where it cannot be asked.
size_t width_of(std::FILE* stream) {
  struct winsize size {};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

/// The first `columns` characters, not bytes, of UTF-8 text.
std::string cut(const std::string& text, size_t columns) {
  size_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins && seen++ == columns) return text.substr(0, i);
  }
  return text;
}

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = std::max<int64_t>(1, std::llround(seconds));
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {
  if (!options_.now) options_.now = steady_seconds;
  if (options_.style == Style::automatic) options_.style = can_redraw(options_.stream) ? Style::bar : Style::lines;
  colour_ = options_.style == Style::bar && std::getenv("NO_COLOR") == nullptr;
}

Progress::~Progress() { erase(); }

void Progress::begin(std::string task, int64_t total, int64_t done, std::optional<double> cost_left) {
  task_ = std::move(task);
  what_.clear();
  total_ = total;
  done_ = done;
  cost_left_ = cost_left.value_or(static_cast<double>(total - done));
  cost_spent_ = 0;
  began_ = options_.now();
  drawn_ = -1e9;
  active_ = true;
  draw(false);
}

void Progress::note(std::string what) {
  what_ = std::move(what);
  draw(false);
}

void Progress::advance(int64_t steps, double cost) {
  cost_spent_ += static_cast<double>(steps) * cost;
  skip(steps, cost);
}

void Progress::skip(int64_t steps, double cost) {
  done_ += steps;
  cost_left_ -= static_cast<double>(steps) * cost;
  draw(false);
}

void Progress::finish() {
  if (!active_) return;
  draw(true);
  active_ = false;
}

void Progress::message(const std::string& line) {
  erase();
  fmt::print(options_.stream, "{}\n", line);
  std::fflush(options_.stream);
  drawn_ = options_.style == Style::bar ? -1e9 : drawn_;
}

std::string Progress::time_left() const {
  const double spent = active_ ? options_.now() - began_ : 0;
  if (cost_spent_ <= 0 || spent <= 0 || done_ >= total_) return "";
  return duration_text(spent / cost_spent_ * cost_left_);
}

void Progress::erase() {
  if (!on_screen_) return;
  fmt::print(options_.stream, "\r\x1b[K");
  std::fflush(options_.stream);
  on_screen_ = false;
}

void Progress::draw(bool last) {
  if (!active_ || options_.style == Style::quiet) return;
  const double now = options_.now();
  const bool bar = options_.style == Style::bar;
  if (!last && !bar && done_ >= total_) return;  // finish() prints that line
  if (!last && now - drawn_ < seconds(bar ? options_.bar_interval : options_.line_interval)) return;
  drawn_ = now;

  const double share = total_ > 0 ? std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0) : 1;
  std::string text = fmt::format("{}/{} {:3.0f}%", done_, total_, std::floor(share * 100));
  if (last) {
    text += " in " + duration_text(now - began_);
  } else if (const std::string left = time_left(); !left.empty()) {
    text += fmt::format(", {} left", left);
  }
  if (!last && !what_.empty()) text += ": " + what_;
  if (!bar || last) {
    erase();
    fmt::print(options_.stream, "{}: {}\n", task_, text);
    std::fflush(options_.stream);
    return;
  }
  constexpr size_t kCells = 24;
  const auto full = static_cast<size_t>(share * kCells);
  const std::string filled = std::string(full, '#');
  const std::string empty = std::string(kCells - full, '.');
  const std::string tail =
      cut(fmt::format(" {}", text), std::max<size_t>(width_of(options_.stream), kCells + 4) - kCells - 3);
  fmt::print(options_.stream, "\r\x1b[K[{}{}{}{}]{}", colour_ ? "\x1b[32m" : "", filled, colour_ ? "\x1b[0m" : "",
             empty, tail);
  std::fflush(options_.stream);
  on_screen_ = true;
}

}  // namespace kvarena
