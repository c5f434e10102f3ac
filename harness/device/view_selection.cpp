#include "harness/device/view_selection.h"

#include <algorithm>

#include "harness/core/error.h"
#include "harness/device/device_segment.h"

namespace kvarena::device {
namespace {

ExtraRuns extra_of(AttentionItem item) {
  KVARENA_ASSERT(in_runs(item) && (item.sees.rule == Visibility::Rule::all || item.sees.rule == Visibility::Rule::newest),
                 "a view of entries that have no form to go up in");
  return {.runs = std::move(item.runs),
          .lists = std::move(item.lists),
          .queries = item.queries,
          .first_row = item.first_row,
          .causal = item.sees.rule == Visibility::Rule::newest};
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
  for (AttentionItem& item : cache.plan(queries).items) {
    if (std::ranges::find(own, item.stored) != own.end()) {
      KVARENA_ASSERT(item.lists.empty() || own.size() == 1, "a list of entries behind others of the runs");
      selection.own = true;
      if (item.from == &cache.tail()) selection.window = item.sees.window;
      selection.entries = std::move(item.lists);
      continue;
    }
    const auto front = std::ranges::find(fronts, item.stored->version());
    if (front == fronts.end()) {
      if (item.runs.front().entries > 0) selection.extra.push_back(extra_of(std::move(item)));
      continue;
    }
    selection.fronts[static_cast<size_t>(front - fronts.begin())] = {
        .attended = true, .codes_alone = item.steps.empty(), .lists = std::move(item.lists)};
  }
  return selection;
}

}  // namespace kvarena::device
