#include "harness/cache/clamped_distance_view.h"

#include <algorithm>

#include "harness/cache/run_attention.h"

namespace kvarena {
namespace {

std::vector<kernels::HeadRun> runs_of(const EntrySegment& segment) {
  std::vector<kernels::HeadRun> runs;
  for (int64_t h = 0; h < segment.shape().kv_heads; ++h) runs.push_back(segment.run(h));
  return runs;
}

LayerShape windowed(LayerShape shape, int64_t window) {
  shape.window = window;
  return shape;
}

}  // namespace

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

/// A causal mask over them.
int64_t ClampedDistanceView::seeing_overflow(int64_t q_len) const { return std::min(q_len, parts_.overflow->entries(0)); }

LayerQueries ClampedDistanceView::turned(const LayerQueries& queries, bool overflow) const {
  const LayerShape& shape = parts_.tail->shape();
  const int64_t row = shape.q_heads * shape.head_dim;
  const int64_t seeing = overflow ? seeing_overflow(queries.q_len) : queries.q_len;
  const int64_t first = queries.q_len - seeing;
  return {
      .q = parts_.queries.data() + first * row, .q_len = seeing, .q_stride = row, .position = queries.position + first};
}

void ClampedDistanceView::attend(const LayerQueries& queries, bool /*causal*/, kernels::AttentionState& state) const {
  const LayerShape& shape = parts_.tail->shape();
  const LayerQueries all = turned(queries, false);
  for (const EntrySegment* segment : parts_.far) segment->attend(all, /*causal=*/false, state);
  if (const LayerQueries late = turned(queries, true); late.q_len > 0) {
    const int64_t row = (queries.q_len - late.q_len) * shape.q_heads;
    kernels::AttentionState rest{
        .out = state.out + row * shape.head_dim, .max = state.max + row, .sum = state.sum + row};
    parts_.overflow->attend(late, /*causal=*/true, rest);
  }
  attend_runs(windowed(shape, parts_.window), runs_of(*parts_.tail), queries, /*causal=*/true, state);
}

void ClampedDistanceView::add_near_probabilities(const LayerQueries& queries, const float* lse, float* sums,
                                         int64_t row_stride) const {
  add_run_probabilities(windowed(parts_.tail->shape(), parts_.window), runs_of(*parts_.tail), queries, /*causal=*/true,
                        lse, sums, row_stride);
}

void ClampedDistanceView::add_probabilities(const LayerQueries& queries, bool /*causal*/, const float* lse, float* sums,
                                    int64_t row_stride) const {
  const LayerQueries all = turned(queries, false);
  for (const EntrySegment* segment : parts_.far) {
    segment->add_probabilities(all, /*causal=*/false, lse, sums, row_stride);
    sums += segment->entries(0);
  }
  if (const LayerQueries late = turned(queries, true); late.q_len > 0) {
    const int64_t first = queries.q_len - late.q_len;
    parts_.overflow->add_probabilities(late, /*causal=*/true, lse + first * parts_.tail->shape().q_heads, sums,
                                      row_stride);
  }
  add_near_probabilities(queries, lse, sums, row_stride);
}

void ClampedDistanceView::read(int64_t kv_head, float* keys, float* values) const {
  const int64_t dim = parts_.tail->shape().head_dim;
  const auto next = [&](const EntrySegment& segment) {
    segment.read(kv_head, keys, values);
    if (keys != nullptr) keys += segment.entries(kv_head) * dim;
    if (values != nullptr) values += segment.entries(kv_head) * dim;
  };
  for (const EntrySegment* segment : parts_.far) next(*segment);
  next(*parts_.tail);
}

std::unique_ptr<Segment> ClampedDistanceView::clone(const LedgerPtr& /*ledger*/) const {
  return std::make_unique<ClampedDistanceView>(parts_);
}

}  // namespace kvarena
