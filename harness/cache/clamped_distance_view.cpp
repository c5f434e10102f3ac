#include "harness/cache/clamped_distance_view.h"

#include <algorithm>

namespace kvarena {
int64_t ClampedDistanceView::entries(int64_t kv_head) const {
  int64_t total = parts_.tail->entries(kv_head);
  for (const EntrySegment* segment : parts_.far) total += segment->entries(kv_head);
  return total;
}

std::vector<int32_t> ClampedDistanceView::positions(int64_t kv_head) const {
  std::vector<int32_t> all;
  const auto add = [&](const EntrySegment& segment) {
    const std::vector<int32_t> part = segment.positions(kv_head);
    all.insert(all.end(), part.begin(), part.end());
  };
  for (const EntrySegment* segment : parts_.far) add(*segment);
  add(*parts_.tail);
  return all;
}

int64_t ClampedDistanceView::seeing_overflow(int64_t q_len) const {
  return std::min(q_len, parts_.overflow->entries(0));
}

void ClampedDistanceView::plan(const LayerQueries& queries, AttentionPlan& to) const {
  const auto from_afar = [&](const EntrySegment& segment) -> AttentionItem& {
    segment.plan(queries, to);
    to.items.back().queries = parts_.queries.data();
    return to.items.back();
  };
  for (const EntrySegment* segment : parts_.far) from_afar(*segment);
  const int64_t first_of_tail = to.columns;
  AttentionItem& overflow = from_afar(*parts_.overflow);
  overflow.first_row = queries.q_len - seeing_overflow(queries.q_len);
  overflow.sees = {.rule = Visibility::Rule::newest};
  to.columns = first_of_tail;
  parts_.tail->plan_newest(queries, to, parts_.window);
}

std::unique_ptr<Segment> ClampedDistanceView::clone(const LedgerPtr& /*ledger*/) const {
  return std::make_unique<ClampedDistanceView>(parts_);
}

}  // namespace kvarena
