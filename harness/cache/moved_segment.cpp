#include "harness/cache/moved_segment.h"

#include <numeric>

#include "harness/core/error.h"
#include "kernels/cells/cells.h"

namespace kvarena {

MovedSegment::MovedSegment(const EntrySegment& chunk, int64_t first, int64_t distance, RotaryKeys rotation,
                           const LedgerPtr& ledger)
    : Segment(chunk.shape()),
      chunk_(std::move(static_cast<EntrySegment&>(*chunk.clone(ledger)))),
      first_(first),
      distance_(distance),
      rotation_(std::move(rotation)) {
  KVARENA_ASSERT(!chunk.ragged() && first % kernels::kCell == 0, "whole cells of a chunk that all heads hold");
}

std::vector<int32_t> MovedSegment::positions(int64_t kv_head) const {
  std::vector<int32_t> run(static_cast<size_t>(entries(kv_head)));
  std::iota(run.begin(), run.end(), static_cast<int32_t>(distance_ + first_));
  return run;
}

void MovedSegment::plan(const LayerQueries& /*queries*/, AttentionPlan& to) const {
  AttentionItem& item = to.add(*this);
  item.dtype = shape().dtype;
  const int64_t hidden = kernels::cell_bytes(first_, shape().head_dim, shape().dtype);
  for (int64_t head = 0; head < shape().kv_heads; ++head) {
    const kernels::HeadRun run = chunk_.run(head);
    item.runs.push_back({.keys = static_cast<const std::byte*>(run.keys) + hidden,
                         .values = static_cast<const std::byte*>(run.values) + hidden,
                         .entries = entries(head)});
  }
  if (distance_ != 0) {
    const PositionReader distances = [by = static_cast<int32_t>(distance_)](int64_t, int64_t, int64_t count) {
      return std::vector<int32_t>(static_cast<size_t>(count), by);
    };
    rotation_.add_dequant_op(distances, item.steps.keys);
  }
  item.sees = in_window_of(shape());
}

std::unique_ptr<Segment> MovedSegment::clone(const LedgerPtr& ledger) const {
  return std::make_unique<MovedSegment>(chunk_, first_, distance_, rotation_, ledger);
}

}  // namespace kvarena
