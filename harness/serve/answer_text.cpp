#include "harness/serve/answer_text.h"

#include <algorithm>
#include <string_view>

namespace kvarena::serve {
namespace {

/// Length of the longest end of `text` that begins `stop` and is not all of it.
size_t begun(std::string_view text, std::string_view stop) {
  size_t length = std::min(text.size(), stop.size() - 1);
  while (length > 0 && !text.ends_with(stop.substr(0, length))) --length;
  return length;
}

}  // namespace

std::string AnswerText::push(int32_t token) {
  if (stopped_) return "";
  held_ += detokenizer_.push(token);
  return release();
}

std::string AnswerText::finish() {
  if (stopped_) return "";
  held_ += detokenizer_.finish();
  std::string text = release();
  text += held_;
  held_.clear();
  return text;
}

std::string AnswerText::release() {
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  stopped_ = end != std::string::npos;
  if (!stopped_) {
    size_t kept = 0;
    for (const std::string& stop : stops_) kept = std::max(kept, begun(held_, stop));
    end = held_.size() - kept;
  }
  std::string text = held_.substr(0, end);
  held_.erase(0, stopped_ ? held_.size() : end);
  return text;
}

}  // namespace kvarena::serve
