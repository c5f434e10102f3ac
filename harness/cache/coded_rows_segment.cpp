#include "harness/cache/coded_rows_segment.h"

#include <algorithm>

#include "harness/cache/gathered_segment.h"

namespace kvarena {

CodedRowsSegment::CodedRowsSegment(const LayerShape& shape, std::unique_ptr<RowCodes> codes, RotaryKeys rotary,
                                   LedgerPtr ledger)
    : PackedSegment(shape),
      codes_(std::move(codes)),
      rotary_(std::move(rotary)),
      ledger_(std::move(ledger)),
      positions_(shape.kv_heads, ledger_) {}

void CodedRowsSegment::take(EntrySegment& tail, int64_t n) {
  EntryBlock block = front_of(tail, n);
  const int64_t heads = block.kv_heads, d = block.head_dim;
  EntryRows exact{.keys = std::vector<float>(block.keys.size()), .values = std::vector<float>(block.values.size())};
  for (int64_t h = 0; h < heads; ++h) {
    rotary_.undo(block.key(h, 0), block.positions[static_cast<size_t>(h)]);
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(block.key(h, i), d, &exact.keys[(i * heads + h) * d]);
      std::copy_n(block.value(h, i), d, &exact.values[(i * heads + h) * d]);
    }
  }
  codes_->append(entries(0), n, exact);
  positions_.append(block.positions);
  tail.drop_front(n);
}

std::unique_ptr<Segment> CodedRowsSegment::restored() const {
  const int64_t n = entries(0), heads = shape().kv_heads, d = shape().head_dim;
  const EntryRows rows = codes_->rows(n);
  auto all = std::make_unique<GatheredSegment>(shape(), n, ledger_);
  std::vector<float> keys(static_cast<size_t>(n * d)), values(keys.size());
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(&rows.keys[(i * heads + h) * d], d, &keys[i * d]);
      std::copy_n(&rows.values[(i * heads + h) * d], d, &values[i * d]);
    }
    const std::vector<int32_t> own = positions(h);
    rotary_.redo(keys.data(), own);
    all->add(h, own, keys.data(), values.data());
  }
  return all;
}

void CodedRowsSegment::plan(const LayerQueries& /*queries*/, AttentionPlan& to) const {
  to.add(*this).gather = [this] { return restored(); };
}

std::unique_ptr<Segment> CodedRowsSegment::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<CodedRowsSegment>(shape(), codes_->clone(ledger), rotary_, ledger);
  copy->positions_ = EntryPositions(positions_, ledger);
  return copy;
}

void CodedRowsSegment::rewind() {
  if (entries(0) > marked_) {
    codes_->truncate(marked_);
    positions_.truncate(marked_);
  }
  change_version();
}

}  // namespace kvarena
