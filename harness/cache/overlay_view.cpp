#include "harness/cache/overlay_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/core/error.h"

namespace kvarena {
namespace {

std::vector<int32_t> all_but(const std::vector<int32_t>& listed, int64_t entries) {
  std::vector<int32_t> all(static_cast<size_t>(entries));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> rest;
  std::ranges::set_difference(all, listed, std::back_inserter(rest));
  return rest;
}

/// sums[h * stride + lists[h / group][i]] += found[h * width + i].
void scatter(const LayerShape& shape, const EntryLists& lists, const std::vector<float>& found, int64_t width,
             float* sums, int64_t stride) {
  for (int64_t h = 0; h < shape.q_heads; ++h) {
    const std::vector<int32_t>& list = lists[h / shape.group()];
    for (size_t i = 0; i < list.size(); ++i) sums[h * stride + list[i]] += found[h * width + static_cast<int64_t>(i)];
  }
}

int64_t widest(const EntryLists& lists) {
  size_t most = 0;
  for (const auto& list : lists) most = std::max(most, list.size());
  return static_cast<int64_t>(most);
}

}  // namespace

PackedSegment* packed_part(const LayerCache& cache) {
  for (const auto& segment : cache.segments()) {
    if (auto* packed = dynamic_cast<PackedSegment*>(segment.get())) return packed;
  }
  return nullptr;
}

OverlayView::OverlayView(const LayerCache& cache, const EntryLists& replaced, const EntrySegment& exact)
    : cache_(&cache), packed_(packed_part(cache)), replaced_(&replaced), exact_(&exact) {
  KVARENA_ASSERT(packed_ != nullptr, "nothing is packed");
  for (int64_t h = 0; h < cache.shape().kv_heads; ++h) {
    KVARENA_ASSERT(static_cast<int64_t>(replaced[h].size()) == exact.entries(h),
                   fmt::format("{} entries replace {}", exact.entries(h), replaced[h].size()));
    rest_.push_back(all_but(replaced[h], packed_->entries(h)));
  }
}

std::vector<int32_t> OverlayView::positions(int64_t kv_head) const {
  std::vector<int32_t> all;
  for (const auto& segment : cache_->segments()) {
    const std::vector<int32_t> part = segment->positions(kv_head);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<int32_t> OverlayView::exact_positions(int64_t kv_head) const {
  std::vector<int32_t> all;
  for (const auto& segment : cache_->segments()) {
    const std::vector<int32_t> part = segment->positions(kv_head);
    if (segment.get() == packed_) {
      for (const int32_t i : (*replaced_)[kv_head]) all.push_back(part[i]);
    } else {
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  std::ranges::sort(all);
  return all;
}

void OverlayView::attend(const LayerQueries& queries, bool /*causal*/, kernels::AttentionState& state) const {
  for (const auto& segment : cache_->segments()) {
    if (segment.get() == packed_) {
      packed_->attend_listed(rest_, queries, state);
      exact_->attend(queries, /*causal=*/false, state);
    } else {
      segment->attend(queries, /*causal=*/segment == cache_->segments().back(), state);
    }
  }
}

void OverlayView::add_packed_probabilities(const LayerQueries& queries, const float* lse, float* sums,
                                            int64_t row_stride) const {
  const LayerShape& shape = cache_->shape();
  const int64_t width = std::max(widest(rest_), widest(*replaced_));
  std::vector<float> found(static_cast<size_t>(shape.q_heads * width));
  packed_->add_listed_probabilities(rest_, queries, lse, found.data(), width);
  scatter(shape, rest_, found, width, sums, row_stride);
  std::ranges::fill(found, 0.0F);
  exact_->add_probabilities(queries, /*causal=*/false, lse, found.data(), width);
  scatter(shape, *replaced_, found, width, sums, row_stride);
}

void OverlayView::add_probabilities(const LayerQueries& queries, bool /*causal*/, const float* lse, float* sums,
                                     int64_t row_stride) const {
  for (const auto& segment : cache_->segments()) {
    if (segment.get() == packed_) {
      add_packed_probabilities(queries, lse, sums, row_stride);
    } else {
      segment->add_probabilities(queries, /*causal=*/segment == cache_->segments().back(), lse, sums, row_stride);
    }
    sums += segment->entries(0);  // every head of a packed layer holds the same number
  }
}

void OverlayView::read(int64_t kv_head, float* keys, float* values) const {
  const int64_t d = cache_->shape().head_dim;
  const int64_t count = exact_->entries(kv_head);
  std::vector<float> exact_keys(static_cast<size_t>(count * d));
  std::vector<float> exact_values(exact_keys.size());
  exact_->read(kv_head, exact_keys.data(), exact_values.data());
  for (const auto& segment : cache_->segments()) {
    segment->read(kv_head, keys, values);
    for (int64_t i = 0; i < count && segment.get() == packed_; ++i) {
      const int64_t to = (*replaced_)[kv_head][i] * d;
      if (keys != nullptr) std::copy_n(&exact_keys[i * d], d, keys + to);
      if (values != nullptr) std::copy_n(&exact_values[i * d], d, values + to);
    }
    if (keys != nullptr) keys += segment->entries(kv_head) * d;
    if (values != nullptr) values += segment->entries(kv_head) * d;
  }
}

std::unique_ptr<Segment> OverlayView::clone(const LedgerPtr& /*ledger*/) const {
  return std::make_unique<OverlayView>(*cache_, *replaced_, *exact_);
}

}  // namespace kvarena
