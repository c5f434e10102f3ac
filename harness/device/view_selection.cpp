#include "harness/device/view_selection.h"

#include <algorithm>
#include <numeric>
#include <ranges>

#include "harness/cache/entry_source.h"
#include "harness/core/error.h"
#include "harness/device/device_segment.h"

namespace kvarena::device {
namespace {

/// The entries that a list names behind the run's own are the pass's, which are not there yet.
int64_t fresh_of(const AttentionItem& item, int64_t rows) {
  const bool any =
      !item.lists.empty() && !item.lists.front().empty() && item.lists.front().back() >= item.runs.front().entries;
  return any ? rows : 0;
}

/// Whether lists name all there is.
bool list_everything(const ExtraRuns& extra) {
  if (extra.lists.size() != extra.runs.size()) return false;
  for (size_t head = 0; head < extra.runs.size(); ++head) {
    if (std::ssize(extra.lists[head]) != extra.runs[head].entries + extra.fresh) return false;
  }
  return true;
}

const EntrySource* source_in(const LayerCache& cache) { return dynamic_cast<const EntrySource*>(cache.index.get()); }

ExtraRuns extra_of(AttentionItem item, const LayerCache& cache, int64_t fresh) {
  KVARENA_ASSERT(
      in_runs(item) && (item.sees.rule == Visibility::Rule::all || item.sees.rule == Visibility::Rule::newest),
      "a view of entries that have no form to go up in");
  ExtraRuns extra{.runs = std::move(item.runs),
                  .fresh = fresh,
                  .lists = std::move(item.lists),
                  .queries = item.queries,
                  .first_row = item.first_row,
                  .causal = item.sees.rule == Visibility::Rule::newest};
  if (list_everything(extra)) extra.lists.clear();
  const EntrySource* const index = source_in(cache);
  extra.source = index != nullptr ? index->source_of(*item.stored) : 0;
  for (int64_t head = 0; head < std::ssize(extra.runs); ++head) {
    std::vector<int32_t>& own = extra.positions.emplace_back();
    if (extra.source != 0) {
      own = item.stored->positions(head);
    } else {
      own.resize(static_cast<size_t>(extra.runs[head].entries));
      std::iota(own.begin(), own.end(), 0);
    }
  }
  if (extra.source == 0) extra.source = item.stored->version();
  return extra;
}

/// Segments that are to stay on the device and are not among those that the plan shows.
std::vector<ExtraRuns> unshown(const LayerCache& cache, const std::vector<const Segment*>& shown) {
  std::vector<ExtraRuns> kept;
  const EntrySource* const index = source_in(cache);
  if (index == nullptr) return kept;
  for (const Segment* segment : index->held()) {
    if (std::ranges::find(shown, segment) != shown.end()) continue;
    kept.push_back(extra_of(stored_item(*segment), cache, /*fresh=*/0));
    kept.back().attended = false;
  }
  return kept;
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
  std::vector<const Segment*> brought;
  for (AttentionItem& item : plan.items) {
    KVARENA_ASSERT(item.biases.empty(), "biases are added on the host");
    const auto part = std::ranges::find(own, item.stored);
    const auto front = std::ranges::find(fronts, item.stored->version());
    if (part != own.end()) {
      selection.own = true;
      shown[static_cast<size_t>(part - own.begin())] = &item;
      selection.window = std::max(selection.window, item.sees.window);
    } else if (front != fronts.end()) {
      selection.fronts[static_cast<size_t>(front - fronts.begin())] = {
          .attended = true, .codes_alone = item.steps.empty(), .lists = std::move(item.lists)};
    } else if (const int64_t fresh = fresh_of(item, queries.q_len); item.runs.front().entries + fresh > 0) {
      brought.push_back(item.stored);
      selection.extra.push_back(extra_of(std::move(item), cache, fresh));
    }
  }
  std::ranges::move(unshown(cache, brought), std::back_inserter(selection.extra));
  const auto whole = [](const AttentionItem* item) { return item != nullptr && item->lists.empty(); };
  if (!selection.own || std::ranges::all_of(shown, whole)) return selection;
  selection.joined = joined_lists(cache, own, shown);
  selection.entries.assign(selection.joined.begin(), selection.joined.end());
  return selection;
}

}  // namespace kvarena::device
