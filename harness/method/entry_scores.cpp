#include "harness/method/entry_scores.h"

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "kernels/cell_scores/cell_scores.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/top_k/top_k.h"

namespace kvarena {
namespace {

/// Row 0 becomes the mean or the maximum over all rows.
void fold_rows(std::span<float> scores, int64_t rows, bool mean) {
  const size_t width = scores.size() / static_cast<size_t>(rows);
  for (int64_t row = 1; row < rows; ++row) {
    for (size_t i = 0; i < width; ++i) {
      const float other = scores[static_cast<size_t>(row) * width + i];
      scores[i] = mean ? scores[i] + other : std::max(scores[i], other);
    }
  }
}

}  // namespace

void inner_products(const EntrySegment& entries, const LayerQueries& queries, int64_t kv_head,
                    std::span<float> scores) {
  const LayerShape& shape = entries.shape();
  const auto end = static_cast<int64_t>(scores.size()) / shape.group();
  const kernels::Cells keys{.kind = kernels::CellKind::keys,
                            .dtype = shape.dtype,
                            .head_dim = shape.head_dim,
                            .data = const_cast<void*>(entries.run(kv_head).keys)};
  kernels::cell_scores(queries.q + kv_head * shape.group() * shape.head_dim, shape.group(), shape.head_dim, keys, end,
                       scores.data(), end);
}

void softmax_rows(std::span<float> scores, int64_t rows, float scale, const float* sinks) {
  const auto width = static_cast<int64_t>(scores.size()) / rows;
  kernels::softmax(scores.data(), rows, width, width, scale, sinks);
}

void attention_rows(std::span<float> scores, const LayerShape& shape, int64_t kv_head) {
  const int64_t group = shape.group();
  softmax_rows(scores, group, attention_scale(shape), shape.sinks == nullptr ? nullptr : shape.sinks + kv_head * group);
}

void refuse_numbers(const std::string& method) {
  fail({.place = method,
        .found = "a score that is not a number",
        .expected = "finite scores",
        .action = "the model's keys or queries may hold NaN or infinity"});
}

void require_numbers(std::span<const float> scores, const std::string& method) {
  if (std::ranges::any_of(scores, [](float score) { return std::isnan(score); })) refuse_numbers(method);
}

std::vector<int32_t> best_candidates(std::span<const float> scores, const Candidates& among,
                                     const std::string& method) {
  const std::span<const float> own =
      scores.subspan(static_cast<size_t>(among.first), static_cast<size_t>(among.size()));
  std::vector<int32_t> best(static_cast<size_t>(std::min(among.count, among.size())));
  const int64_t found = kernels::top_k(own.data(), among.size(), among.count, best.data());
  if (found < 0) require_numbers(own, method);
  for (int32_t& entry : best) entry += static_cast<int32_t>(among.first);
  return best;
}

void ScoringRetriever::parameters(ParameterVisitor& p) {
  p("gqa", gqa_)
      .one_of({"mean", "max", "none"})
      .doc("one selection a kv head by the mean or maximum of its group's softmax, or one a query head");
}

Selection ScoringRetriever::select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                                   const Candidates& among) const {
  const LayerShape& shape = entries.shape();
  const int64_t width = scored(index, entries);
  std::vector<float> scores(static_cast<size_t>(shape.group() * width));
  Selection selection;
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    score(index, entries, queries, head, scores);
    const bool together = gqa_ != "none" && shape.group() > 1;
    if (together) {
      attention_rows(scores, shape, head);
      fold_rows(scores, shape.group(), gqa_ == "mean");
    }
    for (int64_t row = 0; row < (together ? 1 : shape.group()); ++row) {
      const std::span<const float> own(scores.data() + row * width, static_cast<size_t>(width));
      selection.lists.push_back(best_candidates(own, among, name_));
    }
  }
  return selection;
}

}  // namespace kvarena
