// Coded rows: what the codes stand for comes back at its positions, in steps, from a clone and after a rewind.

#include "harness/cache/coded_rows_segment.h"

#include <gtest/gtest.h>

#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};
constexpr int64_t kWidth = 32;
const std::vector<double> kFrequencies = {1.0, 0.5, 0.25, 0.125, 0.1, 0.05, 0.02, 0.01};

/// Holds keys as they are, and values of the opposite sign.
class Kept final : public RowCodes {
 public:
  void append(int64_t first, int64_t count, const EntryRows& exact) override {
    EXPECT_EQ(std::ssize(rows_.keys), first * kWidth);
    EXPECT_EQ(std::ssize(exact.keys), count * kWidth);
    rows_.keys.insert(rows_.keys.end(), exact.keys.begin(), exact.keys.end());
    for (const float value : exact.values) rows_.values.push_back(-value);
  }
  EntryRows rows(int64_t count) const override {
    EXPECT_EQ(std::ssize(rows_.keys), count * kWidth);
    return rows_;
  }
  void truncate(int64_t entries) override {
    rows_.keys.resize(static_cast<size_t>(entries * kWidth));
    rows_.values.resize(static_cast<size_t>(entries * kWidth));
  }
  int64_t bytes() const override { return std::ssize(rows_.keys); }
  std::unique_ptr<RowCodes> clone(const LedgerPtr& /*ledger*/) const override { return std::make_unique<Kept>(*this); }

 private:
  EntryRows rows_;
};

class CodedRows : public ::testing::Test {
 protected:
  /// The next `n` entries, at positions from `position` on.
  void take(int64_t n, int64_t position) {
    EntrySegment tail(kShape, ledger_);
    const std::vector<float> keys = testing::random_floats(n * kWidth, "keys" + std::to_string(position));
    const std::vector<float> values = testing::random_floats(n * kWidth, "values" + std::to_string(position));
    tail.append(keys.data(), values.data(), n, kWidth, position);
    segment_.take(tail, n);
    EXPECT_EQ(tail.entries(0), 0);
    keys_.insert(keys_.end(), keys.begin(), keys.end());
    values_.insert(values_.end(), values.begin(), values.end());
  }
  /// Expects a segment to hold the first `n` entries that were taken.
  void expect_entries(const Segment& segment, int64_t n) const {
    ASSERT_EQ(segment.entries(1), n);
    for (int64_t head = 0; head < kShape.kv_heads; ++head) {
      std::vector<float> keys(static_cast<size_t>(n * kShape.head_dim)), values(keys.size());
      segment.read(head, keys.data(), values.data());
      for (int64_t i = 0; i < n * kShape.head_dim; ++i) {
        const int64_t at = i / kShape.head_dim * kWidth + head * kShape.head_dim + i % kShape.head_dim;
        EXPECT_NEAR(keys[i], keys_[at], 1e-5);
        EXPECT_EQ(values[i], -values_[at]);
      }
    }
  }

  LedgerPtr ledger_ = std::make_shared<MemoryLedger>();
  CodedRowsSegment segment_{kShape, std::make_unique<Kept>(), RotaryKeys(kFrequencies), ledger_};
  std::vector<float> keys_, values_;
};

TEST_F(CodedRows, ComeBackAtTheirPositions) {
  take(5, 3);
  take(7, 20);  // behind a gap
  expect_entries(segment_, 12);
  EXPECT_EQ(segment_.positions(1), (std::vector<int32_t>{3, 4, 5, 6, 7, 20, 21, 22, 23, 24, 25, 26}));
}

TEST_F(CodedRows, AreAClonesOwn) {
  take(5, 0);
  const auto clone = segment_.clone(std::make_shared<MemoryLedger>());
  take(4, 5);
  expect_entries(*clone, 5);
  expect_entries(segment_, 9);
}

TEST_F(CodedRows, AreTakenBack) {
  take(5, 0);
  segment_.mark(ledger_);
  take(4, 5);
  segment_.rewind();
  expect_entries(segment_, 5);
  EXPECT_EQ(segment_.bytes(), 5 * kWidth);
}

}  // namespace
}  // namespace kvarena
