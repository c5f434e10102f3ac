#include "harness/cache/attention_plan.h"

#include <algorithm>

namespace kvarena {

AttentionItem& AttentionPlan::add(const Segment& from) {
  AttentionItem& item = items.emplace_back();
  item.from = item.stored = &from;
  item.column = columns;
  int64_t longest = 0;
  for (int64_t head = 0; head < from.shape().kv_heads; ++head) longest = std::max(longest, from.entries(head));
  columns += longest;
  return item;
}

std::vector<int32_t> positions_of(const AttentionItem& item, int64_t q_head) {
  const LayerShape& shape = item.from->shape();
  std::vector<int32_t> positions = item.from->positions(q_head / shape.group());
  if (!item.lists.empty()) {
    const std::span<const int32_t> list = item.lists[q_head / (shape.q_heads / std::ssize(item.lists))];
    std::vector<int32_t> listed;
    for (const int32_t entry : list) listed.push_back(positions[entry]);
    positions = std::move(listed);
  }
  std::erase(positions, kNoPosition);
  return positions;
}

AttentionPlan plan_of(const Segment& segment, const LayerQueries& queries) {
  AttentionPlan plan{.queries = queries, .items = {}};
  segment.plan(queries, plan);
  return plan;
}

}  // namespace kvarena
