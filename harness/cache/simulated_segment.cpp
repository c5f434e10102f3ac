#include "harness/cache/simulated_segment.h"

#include <cmath>

namespace kvarena {

SimulatedSegment::SimulatedSegment(const LayerShape& shape, double bits, RoundTrip round_trip, LedgerPtr ledger)
    : PackedSegment(shape),
      bits_(bits),
      round_trip_(std::move(round_trip)),
      ledger_(std::move(ledger)),
      decoded_(std::make_unique<EntrySegment>(shape, std::make_shared<MemoryLedger>())) {}

void SimulatedSegment::take(EntrySegment& tail, int64_t n) {
  EntryBlock block = front_of(tail, n);
  round_trip_(block);
  const int64_t d = shape().head_dim;
  for (int64_t head = 0; head < shape().kv_heads; ++head) {
    require_finite({block.key(head, 0), static_cast<size_t>(n * d)}, "decoded key", head);
    require_finite({block.value(head, 0), static_cast<size_t>(n * d)}, "decoded value", head);
    decoded_->append_to_head(head, block.positions[static_cast<size_t>(head)], block.key(head, 0), block.value(head, 0),
                             d);
  }
  tail.drop_front(n);
  count(entries(0));
}

std::unique_ptr<Segment> SimulatedSegment::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<SimulatedSegment>(shape(), bits_, round_trip_, ledger);
  std::unique_ptr<Segment> decoded = decoded_->clone(std::make_shared<MemoryLedger>());
  copy->decoded_.reset(static_cast<EntrySegment*>(decoded.release()));
  copy->count(entries(0));
  return copy;
}

void SimulatedSegment::rewind() {
  decoded_->rewind();
  count(entries(0));
  change_version();
}

void SimulatedSegment::count(int64_t entries) {
  constexpr double kBitsOfAByte = 8;
  const auto numbers = static_cast<double>(2 * shape().kv_heads * shape().head_dim * entries);
  const auto bytes = static_cast<int64_t>(std::ceil(numbers * bits_ / kBitsOfAByte));
  ledger_->add_own(Tier::device, bytes - counted_);
  counted_ = bytes;
}

}  // namespace kvarena
