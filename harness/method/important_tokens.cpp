#include "harness/method/important_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvarena {
namespace {

/// The number of layers, of `all`, that a name stands for.
int64_t layer_count(const std::string& layers, int64_t all) {
  if (layers == "final") return 1;
  if (layers == "last_third") return (all + 2) / 3;
  if (layers == "last_two_thirds") return (2 * all + 2) / 3;
  return all;
}

}  // namespace

std::vector<double> token_importance(const Speculation& speculation, const std::string& layers) {
  const int64_t count = layer_count(layers, speculation.layers);
  std::vector<double> importance(static_cast<size_t>(speculation.tokens), 0.0);
  for (int64_t layer = speculation.layers - count; layer < speculation.layers; ++layer) {
    for (int64_t i = 0; i < speculation.tokens; ++i) importance[i] += speculation.norms[layer * speculation.tokens + i];
  }
  for (double& value : importance) value /= static_cast<double>(count);
  return importance;
}

std::vector<int32_t> most_important(std::span<const double> importance, int64_t count) {
  std::vector<int32_t> order(importance.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return importance[a] > importance[b]; });
  order.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(order.size()))));
  std::ranges::sort(order);
  return order;
}

std::vector<PromptPart> smooth_spans(std::span<const double> importance, double smooth, int64_t longest) {
  std::vector<PromptPart> spans;
  if (importance.empty()) return spans;
  const auto range = std::ranges::minmax(importance);
  const double least = range.min;  // no structured binding: Clang 16 cannot capture one where OpenMP is on
  const double most = range.max;
  const auto scaled = [&](size_t i) { return most > least ? (importance[i] - least) / (most - least) : 0.0; };
  spans.push_back({.begin = 0, .end = 1});
  for (size_t i = 0; i + 1 < importance.size(); ++i) {
    const double step = std::abs(scaled(i + 1) - scaled(i));
    double relative = 0;
    if (step > 0) relative = scaled(i) > 0 ? step / scaled(i) : std::numeric_limits<double>::infinity();
    PromptPart& span = spans.back();
    if (relative < smooth && span.end - span.begin < longest) {
      ++span.end;
    } else {
      spans.push_back({.begin = span.end, .end = span.end + 1});
    }
  }
  return spans;
}

std::vector<int32_t> complete_spans(const std::vector<PromptPart>& spans, std::span<const int32_t> selected,
                                    double cover) {
  std::vector<int32_t> completed;
  auto next = selected.begin();
  for (const PromptPart& span : spans) {
    const auto first = next;
    while (next != selected.end() && *next < span.end) ++next;
    const auto covered = static_cast<double>(next - first) / static_cast<double>(span.end - span.begin);
    if (covered >= cover) {
      for (int64_t i = span.begin; i < span.end; ++i) completed.push_back(static_cast<int32_t>(i));
    } else {
      completed.insert(completed.end(), first, next);
    }
  }
  return completed;
}

std::vector<int32_t> align_tokens(std::span<const int32_t> selected, std::span<const TextRange> ranges,
                                  std::span<const TextRange> target) {
  // Ranges of both sides ascend, but several tokens may share one.
  std::vector<int32_t> aligned;
  size_t first = 0;  // of the target, whose text is not all in front of the present range
  int32_t taken = -1;
  for (const int32_t i : selected) {
    const TextRange& range = ranges[i];
    while (first < target.size() && target[first].end <= range.begin) ++first;
    for (size_t j = first; j < target.size() && target[j].begin < range.end; ++j) {
      if (static_cast<int32_t>(j) <= taken || !target[j].overlaps(range)) continue;
      taken = static_cast<int32_t>(j);
      aligned.push_back(taken);
    }
  }
  return aligned;
}

}  // namespace kvarena
