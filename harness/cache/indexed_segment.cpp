#include "harness/cache/indexed_segment.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cache/run_attention.h"
#include "harness/core/error.h"

namespace kvarena {

IndexedSegment::IndexedSegment(const EntrySegment& base, const std::vector<std::vector<int32_t>>& selected,
                               const LedgerPtr& ledger)
    : base_(&base), ledger_(ledger) {
  const auto lists = static_cast<int64_t>(selected.size());
  KVARENA_ASSERT(
      lists == base.shape().kv_heads || lists == base.shape().q_heads,
      fmt::format("{} lists for {} kv heads and {} query heads", lists, base.shape().kv_heads, base.shape().q_heads));
  for (const auto& list : selected) {
    selected_.emplace_back(list.begin(), list.end(), LedgerAllocator<int32_t>(ledger));
  }
}

bool IndexedSegment::per_query_head() const {
  return static_cast<int64_t>(selected_.size()) != base_->shape().kv_heads;
}

std::span<const int32_t> IndexedSegment::selected(int64_t q_head) const {
  return selected_[per_query_head() ? q_head : q_head / base_->shape().group()];
}

int64_t IndexedSegment::entries(int64_t kv_head) const {
  return static_cast<int64_t>(selected(kv_head * base_->shape().group()).size());
}

std::vector<int32_t> IndexedSegment::positions(int64_t kv_head) const {
  const std::vector<int32_t> all = base_->positions(kv_head);
  std::vector<int32_t> list;
  for (const int32_t i : selected(kv_head * base_->shape().group())) list.push_back(all[i]);
  return list;
}

int64_t IndexedSegment::bytes() const {
  int64_t total = 0;
  for (const auto& list : selected_) total += static_cast<int64_t>(list.capacity() * sizeof(int32_t));
  return total;
}

std::vector<kernels::HeadRun> IndexedSegment::runs() const {
  std::vector<kernels::HeadRun> runs;
  const auto lists = static_cast<int64_t>(selected_.size());
  const int64_t heads_per_run = lists / base_->shape().kv_heads;  // the group when selecting per query head, else 1
  for (int64_t i = 0; i < lists; ++i) {
    kernels::HeadRun run = base_->run(i / heads_per_run);
    run.index = selected_[i].data();
    run.index_count = static_cast<int64_t>(selected_[i].size());
    runs.push_back(run);
  }
  return runs;
}

void IndexedSegment::attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const {
  KVARENA_ASSERT(!causal, "a view was chosen for queries that see all of it");
  LayerShape shape = base_->shape();
  if (per_query_head()) shape.kv_heads = shape.q_heads;
  attend_runs(shape, runs(), queries, causal, state);
}

void IndexedSegment::add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                                       int64_t row_stride) const {
  LayerShape shape = base_->shape();
  if (per_query_head()) shape.kv_heads = shape.q_heads;
  add_run_probabilities(shape, runs(), queries, causal, lse, sums, row_stride);
}

void IndexedSegment::read(int64_t kv_head, float* keys, float* values) const {
  const int64_t dim = base_->shape().head_dim;
  std::vector<float> all_keys(static_cast<size_t>(base_->entries(kv_head) * dim));
  std::vector<float> all_values(all_keys.size());
  base_->read(kv_head, all_keys.data(), all_values.data());
  for (const int32_t i : selected(kv_head * base_->shape().group())) {
    if (keys != nullptr) keys = std::copy_n(all_keys.data() + i * dim, dim, keys);
    if (values != nullptr) values = std::copy_n(all_values.data() + i * dim, dim, values);
  }
}

std::unique_ptr<Segment> IndexedSegment::clone(const LedgerPtr& ledger) const {
  std::vector<std::vector<int32_t>> lists;
  for (const auto& list : selected_) lists.emplace_back(list.begin(), list.end());
  return std::make_unique<IndexedSegment>(*base_, std::move(lists), ledger);
}

}  // namespace kvarena
