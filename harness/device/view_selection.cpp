#include "harness/device/view_selection.h"

#include <algorithm>
#include <ranges>

#include "harness/core/error.h"
#include "harness/device/device_segment.h"

namespace kvarena::device {
namespace {

ExtraRuns extra_of(AttentionItem item) {
  KVARENA_ASSERT(
      in_runs(item) && (item.sees.rule == Visibility::Rule::all || item.sees.rule == Visibility::Rule::newest),
      "a view of entries that have no form to go up in");
  return {.runs = std::move(item.runs),
          .lists = std::move(item.lists),
          .queries = item.queries,
          .first_row = item.first_row,
          .causal = item.sees.rule == Visibility::Rule::newest};
}

/// Lists of the layer's runs, in which its own segments stand one behind the other: of each what an item of the view
/// shows, null for nothing.
std::vector<std::vector<int32_t>> joined_lists(const LayerCache& cache, const std::vector<const Segment*>& own,
                                               const std::vector<const AttentionItem*>& shown) {
  size_t count = static_cast<size_t>(cache.shape().kv_heads);
  for (const AttentionItem* item : shown) count = item != nullptr ? std::max(count, item->lists.size()) : count;
  std::vector<std::vector<int32_t>> joined(count);
  for (size_t i = 0; i < count; ++i) {
    const auto kv_head = static_cast<int64_t>(i * static_cast<size_t>(cache.shape().kv_heads) / count);
    for (int32_t first = 0; size_t part : std::views::iota(size_t{0}, own.size())) {
      const auto entries = static_cast<int32_t>(own[part]->entries(kv_head));
      if (const AttentionItem* item = shown[part]; item != nullptr && item->lists.empty()) {
        for (int32_t entry = 0; entry < entries; ++entry) joined[i].push_back(first + entry);
      } else if (item != nullptr) {
        for (const int32_t entry : item->lists[i * item->lists.size() / count]) joined[i].push_back(first + entry);
      }
      first += entries;
    }
  }
  return joined;
}

}  // namespace

AttentionSelection selection_of(const LayerCache& cache, const LayerQueries& queries) {
  if (cache.view == nullptr) return {};
  std::vector<uint64_t> fronts;  // versions of what is stored in front of the runs
  std::vector<const Segment*> own;
  AttentionSelection selection{.own = false};
  for (const auto& segment : cache.segments()) {
    const AttentionItem stored = stored_item(*segment);
    if (in_runs(stored)) {
      own.push_back(segment.get());
    } else {
      fronts.push_back(stored.stored->version());
      selection.fronts.push_back({.attended = false});
    }
  }
  AttentionPlan plan = cache.plan(queries);
  std::vector<const AttentionItem*> shown(own.size());
  for (AttentionItem& item : plan.items) {
    const auto part = std::ranges::find(own, item.stored);
    const auto front = std::ranges::find(fronts, item.stored->version());
    if (part != own.end()) {
      selection.own = true;
      shown[static_cast<size_t>(part - own.begin())] = &item;
      selection.window = std::max(selection.window, item.sees.window);
    } else if (front != fronts.end()) {
      selection.fronts[static_cast<size_t>(front - fronts.begin())] = {
          .attended = true, .codes_alone = item.steps.empty(), .lists = std::move(item.lists)};
    } else if (item.runs.front().entries > 0) {
      selection.extra.push_back(extra_of(std::move(item)));
    }
  }
  const auto whole = [](const AttentionItem* item) { return item != nullptr && item->lists.empty(); };
  if (!selection.own || std::ranges::all_of(shown, whole)) return selection;
  selection.joined = joined_lists(cache, own, shown);
  selection.entries.assign(selection.joined.begin(), selection.joined.end());
  return selection;
}

}  // namespace kvarena::device
