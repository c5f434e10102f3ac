#include "harness/cache/tree_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/core/error.h"

namespace kvarena {

TreeView::TreeView(const EntrySegment& base, std::span<const int32_t> parents)
    : Segment(base.shape()), base_(&base), parents_(parents.begin(), parents.end()) {
  KVARENA_ASSERT(!base.ragged() && base.shape().window == 0, "a tree over entries left out");
  KVARENA_ASSERT(base.entries(0) >= static_cast<int64_t>(parents_.size()), fmt::format("{}", base.entries(0)));
  for (size_t t = 0; t < parents_.size(); ++t) {
    KVARENA_ASSERT(parents_[t] >= -1 && parents_[t] < static_cast<int32_t>(t), fmt::format("row {}", t));
  }
}

void TreeView::plan(const LayerQueries& queries, AttentionPlan& to) const {
  base_->plan(queries, to);
  to.items.back().sees = {.rule = Visibility::Rule::paths, .parents = parents_};
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
