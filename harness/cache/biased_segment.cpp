#include "harness/cache/biased_segment.h"

#include "harness/core/error.h"

namespace kvarena {

BiasedSegment::BiasedSegment(const LayerShape& shape, const LedgerPtr& ledger)
    : Segment(shape),
      entries_(shape, ledger),
      biases_(static_cast<size_t>(shape.kv_heads), LedgerVector<float>(LedgerAllocator<float>(ledger))) {}

void BiasedSegment::append_to_head(int64_t kv_head, std::span<const int32_t> positions, const float* keys,
                                   const float* values, std::span<const float> biases) {
  KVARENA_ASSERT(biases.size() == positions.size(), "a bias for each entry");
  entries_.append_to_head(kv_head, positions, keys, values, shape().head_dim);
  biases_[kv_head].insert(biases_[kv_head].end(), biases.begin(), biases.end());
  change_version();
}

int64_t BiasedSegment::bytes() const {
  int64_t total = entries_.bytes();
  for (const auto& head : biases_) total += static_cast<int64_t>(head.capacity() * sizeof(float));
  return total;
}

void BiasedSegment::plan(const LayerQueries& queries, AttentionPlan& to) const {
  entries_.plan(queries, to);
  to.items.back().from = this;
  to.items.back().biases.assign(biases_.begin(), biases_.end());
}

std::unique_ptr<Segment> BiasedSegment::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<BiasedSegment>(shape(), ledger);
  copy->entries_ = std::move(static_cast<EntrySegment&>(*entries_.clone(ledger)));
  for (size_t head = 0; head < biases_.size(); ++head)
    copy->biases_[head].assign(biases_[head].begin(), biases_[head].end());
  return copy;
}

}  // namespace kvarena
