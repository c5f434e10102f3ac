#include "harness/results/changed_label.h"

#include <algorithm>

namespace kvarena::results {

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

}  // namespace kvarena::results
