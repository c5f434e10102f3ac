#include "harness/cache/entry_ranges_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {
namespace {

/// Entries of `range` that a row sees which owns entry `own`.
int64_t seen_of(const EntryRange& range, int64_t own, int64_t window) {
  const int64_t oldest = window > 0 ? own + 1 - window : 0;
  return std::max<int64_t>(0, std::min<int64_t>(range.end, own + 1) - std::max<int64_t>(range.begin, oldest));
}

}  // namespace

/// Some rows and what they attend to, listed for as long as that takes.
class EntryRangesView::Part final : public Segment {
 public:
  Part(const EntrySegment& base, const Rows& rows) : Segment(base.shape()), base_(&base), rows_(&rows) {
    for (size_t head = 0; head + 1 < rows.begins.size(); ++head) {
      std::vector<int32_t>& list = lists_.emplace_back();
      for (int64_t i = rows.begins[head]; i < rows.begins[head + 1]; ++i) {
        for (int32_t entry = rows.ranges[i].begin; entry < rows.ranges[i].end; ++entry) list.push_back(entry);
      }
    }
  }

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return base_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override { return base_->positions(kv_head); }
  [[nodiscard]] int64_t bytes() const override { return 0; }
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<Part>(*base_, *rows_);
  }

  /// Narrows the plan's queries to the rows, and the entries to those up to the last row's own.
  void plan(const LayerQueries& queries, AttentionPlan& to) const override {
    to.queries.q += rows_->first * queries.q_stride;
    to.queries.q_len = rows_->count;
    to.queries.position += rows_->first;
    base_->plan_newest(to.queries, to, rows_->window);
    AttentionItem& item = to.items.back();
    for (kernels::HeadRun& run : item.runs) run.entries -= queries.q_len - rows_->first - rows_->count;
    const int64_t lists_of_one = std::ssize(lists_) == 1 ? shape().kv_heads : 1;
    for (const std::vector<int32_t>& list : lists_) item.lists.insert(item.lists.end(), lists_of_one, list);
  }

 private:
  const EntrySegment* base_;
  const Rows* rows_;
  std::vector<std::vector<int32_t>> lists_;
};

EntryRangesView::EntryRangesView(const EntrySegment& base, const std::vector<RowRanges>& rows, const LedgerPtr& ledger)
    : EntryRangesView(base, ledger) {
  KVARENA_ASSERT(!base.ragged(), "heads that hold entries of their own have no ranges in common");
  for (const RowRanges& from : rows) {
    const int64_t heads = std::ssize(from.heads);
    KVARENA_ASSERT(
        heads == 1 || heads == shape().kv_heads || heads == shape().q_heads,
        fmt::format("ranges of {} heads for {} kv heads and {} query heads", heads, shape().kv_heads, shape().q_heads));
    Rows& own = rows_.emplace_back(ledger);
    own.first = from.first;
    own.count = from.count;
    own.window = from.window;
    own.begins = {0};
    for (const std::vector<EntryRange>& ranges : from.heads) {
      own.ranges.insert(own.ranges.end(), ranges.begin(), ranges.end());
      own.begins.push_back(std::ssize(own.ranges));
    }
  }
}

int64_t EntryRangesView::bytes() const {
  int64_t total = 0;
  for (const Rows& rows : rows_) total += static_cast<int64_t>(rows.ranges.capacity() * sizeof(EntryRange));
  return total;
}

void EntryRangesView::plan(const LayerQueries& /*queries*/, AttentionPlan& to) const {
  const int64_t column = to.columns;
  for (const Rows& rows : rows_) {
    to.columns = column;  // all name entries of one segment
    to.add(*this).gather = [this, &rows] { return std::make_unique<Part>(*base_, rows); };
  }
}

std::unique_ptr<Segment> EntryRangesView::clone(const LedgerPtr& ledger) const {
  std::unique_ptr<EntryRangesView> copy(new EntryRangesView(*base_, ledger));
  for (const Rows& rows : rows_) {
    Rows& own = copy->rows_.emplace_back(ledger);
    own.ranges.assign(rows.ranges.begin(), rows.ranges.end());
    own.first = rows.first;
    own.count = rows.count;
    own.window = rows.window;
    own.begins = rows.begins;
  }
  return copy;
}

int64_t EntryRangesView::pairs(int64_t q_len) const {
  const int64_t before = base_->entries(0) - q_len;
  int64_t total = 0;
  for (const Rows& rows : rows_) {
    int64_t pairs = 0;
    for (const EntryRange& range : rows.ranges) {
      if (rows.window == 0 && range.end <= before + rows.first + 1) {  // every row sees all of it
        pairs += rows.count * (range.end - range.begin);
        continue;
      }
      for (int64_t row = rows.first; row < rows.first + rows.count; ++row)
        pairs += seen_of(range, before + row, rows.window);
    }
    total += pairs * (shape().q_heads / rows.heads());
  }
  return total;
}

}  // namespace kvarena
