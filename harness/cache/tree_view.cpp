#include "harness/cache/tree_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/cache/run_attention.h"
#include "harness/core/error.h"

namespace kvarena {

TreeView::TreeView(const EntrySegment& base, std::span<const int32_t> parents)
    : base_(&base), parents_(parents.begin(), parents.end()) {
  KVARENA_ASSERT(base.form() == StorageForm::dense && base.shape().window == 0, "a tree over entries left out");
  KVARENA_ASSERT(base.entries(0) >= static_cast<int64_t>(parents_.size()), fmt::format("{}", base.entries(0)));
  for (size_t t = 0; t < parents_.size(); ++t) {
    KVARENA_ASSERT(parents_[t] >= -1 && parents_[t] < static_cast<int32_t>(t), fmt::format("row {}", t));
  }
}

int64_t TreeView::before() const { return base_->entries(0) - static_cast<int64_t>(parents_.size()); }

/// Whole chunks before the tree are seen by all rows alike and read once; what is left of the run is listed for each
/// row.
void TreeView::attend(const LayerQueries& queries, bool /*causal*/, kernels::AttentionState& state) const {
  const LayerShape& shape = base_->shape();
  const int64_t shared = entries_before_paths(before());
  std::vector<kernels::HeadRun> front;
  std::vector<kernels::HeadRun> back;
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    kernels::HeadRun run = base_->run(head);
    const int64_t bytes = kernels::cell_bytes(shared, shape.head_dim, shape.dtype);
    back.push_back({.keys = static_cast<const std::byte*>(run.keys) + bytes,
                    .values = static_cast<const std::byte*>(run.values) + bytes,
                    .entries = run.entries - shared});
    run.entries = shared;
    front.push_back(run);
  }
  if (shared > 0) attend_runs(shape, front, queries, /*causal=*/false, state);
  for (int64_t t = 0; t < queries.q_len; ++t) {
    const std::vector<int32_t> list = tree_path(parents_, t, before(), shared);
    for (kernels::HeadRun& run : back) {
      run.index = list.data();
      run.index_count = static_cast<int64_t>(list.size());
    }
    const int64_t row = t * shape.q_heads;
    attend_runs(
        shape, back,
        {.q = queries.q + t * queries.q_stride, .q_len = 1, .q_stride = queries.q_stride, .position = queries.position},
        /*causal=*/false, {.out = state.out + row * shape.head_dim, .max = state.max + row, .sum = state.sum + row});
  }
}

void TreeView::add_probabilities(const LayerQueries& queries, bool /*causal*/, const float* lse, float* sums,
                                 int64_t row_stride) const {
  const LayerShape& shape = base_->shape();
  std::vector<float> found;
  for (int64_t t = 0; t < queries.q_len; ++t) {
    const std::vector<int32_t> list = tree_path(parents_, t, before(), 0);
    const auto width = static_cast<int64_t>(list.size());
    std::vector<kernels::HeadRun> runs;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      kernels::HeadRun run = base_->run(head);
      run.index = list.data();
      run.index_count = width;
      runs.push_back(run);
    }
    found.assign(static_cast<size_t>(shape.q_heads * width), 0.0F);
    add_run_probabilities(
        shape, runs,
        {.q = queries.q + t * queries.q_stride, .q_len = 1, .q_stride = queries.q_stride, .position = queries.position},
        /*causal=*/false, lse + t * shape.q_heads, found.data(), width);
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      for (int64_t i = 0; i < width; ++i) sums[head * row_stride + list[i]] += found[head * width + i];
    }
  }
}

std::unique_ptr<Segment> TreeView::clone(const LedgerPtr& /*ledger*/) const {
  return std::make_unique<TreeView>(*base_, parents_);
}

int64_t entries_before_paths(int64_t before) { return before / kernels::kChunk * kernels::kChunk; }

std::vector<int32_t> tree_path(std::span<const int32_t> parents, int64_t row, int64_t before, int64_t first) {
  std::vector<int32_t> list(static_cast<size_t>(before - first));
  std::iota(list.begin(), list.end(), 0);
  const auto own = std::ssize(list);
  for (; row >= 0; row = parents[row]) list.push_back(static_cast<int32_t>(before - first + row));
  std::reverse(list.begin() + own, list.end());
  return list;
}

void append_positions(int64_t before, int64_t count, std::span<const int32_t> parents,
                      std::vector<int32_t>& positions) {
  const int64_t first = std::ssize(positions);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t parent = parents.empty() ? row - 1 : parents[row];
    positions.push_back(parent < 0 ? static_cast<int32_t>(before) : positions[first + parent] + 1);
  }
}

}  // namespace kvarena
