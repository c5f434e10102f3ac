#include "harness/results/changed_label.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace kvarena::results {
namespace {

/// Whether `text` is `pattern` with something for each {name}, and perhaps changed settings behind it.
bool fits(std::string_view text, std::string_view pattern) {
  const size_t open = pattern.find('{'), close = pattern.find('}', open);
  if (open == std::string_view::npos || close == std::string_view::npos)
    return text == pattern || (text.starts_with(pattern) && text.substr(pattern.size()).starts_with(" ["));
  if (!text.starts_with(pattern.substr(0, open))) return false;
  for (size_t end = open + 1; end <= text.size(); ++end) {
    if (fits(text.substr(end), pattern.substr(close + 1))) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> label_among(std::span<const std::string> labels, const std::string& label) {
  if (std::ranges::find(labels, label) != labels.end()) return label;
  std::optional<std::string> changed;
  for (const std::string& one : labels) {
    if (!one.starts_with(label + " [")) continue;
    if (changed) return std::nullopt;
    changed = one;
  }
  return changed;
}

std::vector<std::string> labels_fitting(std::span<const std::string> labels, const std::string& label) {
  std::vector<std::string> fitting;
  if (const std::optional<std::string> one = label_among(labels, label)) {
    fitting.push_back(*one);
  } else if (label.find('{') != std::string::npos) {
    std::ranges::copy_if(labels, std::back_inserter(fitting),
                         [&](const std::string& each) { return fits(each, label); });
  }
  return fitting;
}

}  // namespace kvarena::results
