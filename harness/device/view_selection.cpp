#include "harness/device/view_selection.h"

#include "harness/cache/clamped_distance_view.h"
#include "harness/cache/indexed_segment.h"
#include "harness/cache/low_rank_segment.h"
#include "harness/cache/overlay_view.h"
#include "harness/core/error.h"

namespace kvarena::device {
namespace {

template <class Entries>
std::vector<kernels::HeadRun> runs_of(const Entries& segment, int64_t kv_heads) {
  std::vector<kernels::HeadRun> runs;
  for (int64_t h = 0; h < kv_heads; ++h) runs.push_back(segment.run(h));
  return runs;
}

AttentionSelection choice_of(const OverlayView& view, const LayerCache& cache) {
  return {.packed = &view.rest(), .extra = {{.runs = runs_of(view.exact(), cache.shape().kv_heads)}}};
}

AttentionSelection choice_of(const IndexedSegment& view, const LayerCache& cache) {
  AttentionSelection choice{.entries = {view.lists().begin(), view.lists().end()}};
  if (&view.base() != &cache.tail()) choice.runs = runs_of(view.base(), cache.shape().kv_heads);
  return choice;
}

/// What was put together for the step; the tail and what is kept exactly lie on the device.
AttentionSelection choice_of(const ConcatView& view, const LayerCache& cache) {
  AttentionSelection choice;
  for (const Segment* part : view.parts()) {
    const auto* const kept = dynamic_cast<const LowRankSegment*>(cache.segments().front().get());
    if (part == &cache.tail() || (kept != nullptr && part == &kept->exact())) continue;
    const auto* const picked = dynamic_cast<const GatheredSegment*>(part);
    KVARENA_ASSERT(picked != nullptr, "a view of something else than entries that were picked");
    choice.extra.push_back({.runs = runs_of(*picked, cache.shape().kv_heads)});
  }
  return choice;
}

AttentionSelection choice_of(const ClampedDistanceView& view, const LayerCache& cache, int64_t q_len) {
  const ClampedDistanceView::Parts& parts = view.parts();
  AttentionSelection choice{.window = parts.window};
  const auto add = [&](const EntrySegment& segment, int64_t first_row, bool causal) {
    if (segment.entries(0) == 0) return;
    choice.extra.push_back({.runs = runs_of(segment, cache.shape().kv_heads),
                             .queries = parts.queries.data(),
                             .first_row = first_row,
                             .causal = causal});
  };
  for (const EntrySegment* segment : parts.far) add(*segment, 0, /*causal=*/false);
  add(*parts.overflow, q_len - view.seeing_overflow(q_len), /*causal=*/true);
  return choice;
}

}  // namespace

AttentionSelection choice_of(const LayerCache& cache, int64_t q_len) {
  const Segment* const view = cache.view.get();
  if (view == nullptr) return {};
  if (const auto* own = dynamic_cast<const IndexedSegment*>(view)) return choice_of(*own, cache);
  if (const auto* own = dynamic_cast<const OverlayView*>(view)) return choice_of(*own, cache);
  if (const auto* own = dynamic_cast<const ConcatView*>(view)) return choice_of(*own, cache);
  const auto* const distant = dynamic_cast<const ClampedDistanceView*>(view);
  KVARENA_ASSERT(distant != nullptr, "a view that no device knows");
  return choice_of(*distant, cache, q_len);
}

}  // namespace kvarena::device
