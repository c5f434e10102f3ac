#pragma once
// Entries under a codec without a packed form: decoded numbers are held, in the cache's own type.

#include <functional>

#include "harness/cache/dequantizing_segment.h"
#include "harness/cache/entry_segment.h"

namespace kvarena {

/// Entries that are coded stay as they are, others only come behind them.
class SimulatedSegment final : public PackedSegment {
 public:
  /// Turns keys and values of a block into what they come back as.
  using RoundTrip = std::function<void(EntryBlock& block)>;

  /// bytes() and the ledger count `bits` for each number, scales included, in place of what is held.
  SimulatedSegment(const LayerShape& shape, double bits, RoundTrip round_trip, LedgerPtr ledger);
  ~SimulatedSegment() override { count(0); }

  /// Keys and values are coded at once. Throws UserError naming the head when a number is not finite, before or after.
  void take(EntrySegment& tail, int64_t n) override;
  void pack_values(int64_t /*n*/) override {}
  [[nodiscard]] int64_t unpacked_values() const override { return 0; }
  [[nodiscard]] bool simulated() const override { return true; }

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return decoded_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override { return decoded_->positions(kv_head); }
  [[nodiscard]] int64_t bytes() const override { return counted_; }
  void plan(const LayerQueries& queries, AttentionPlan& to) const override { decoded_->plan(queries, to); }
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;
  void mark(const LedgerPtr& held) override { decoded_->mark(held); }
  void rewind() override;
  void unmark() override { decoded_->unmark(); }

 private:
  /// Counts the bytes of so many entries of each head in place of those before.
  void count(int64_t entries);

  double bits_;
  RoundTrip round_trip_;
  LedgerPtr ledger_;
  std::unique_ptr<EntrySegment> decoded_;  // in a ledger of its own
  int64_t counted_ = 0;
};

}  // namespace kvarena
