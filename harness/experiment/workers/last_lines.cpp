#include "harness/experiment/workers/last_lines.h"

namespace kvarena::experiment {

void LastLines::append(std::string_view bytes) {
  for (const char byte : bytes) {
    if (byte == '\n' || begun_.size() == kLongest) end_line();
    if (byte != '\n') begun_ += byte;
  }
}

void LastLines::finish() {
  if (!begun_.empty()) end_line();
}

std::string LastLines::text() const {
  std::string text;
  for (const std::string& line : lines_) {
    text += line;
    text += '\n';
  }
  return text;
}

void LastLines::end_line() {
  if (on_line_) on_line_(begun_);
  lines_.push_back(std::move(begun_));
  begun_.clear();
  if (lines_.size() > kRemembered) lines_.pop_front();
}

}  // namespace kvarena::experiment
