// Latents: what lies along the directions comes back, step by step, at any positions, and after a rewind.

#include "harness/cache/latent_segment.h"

#include <gtest/gtest.h>

#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 4, .head_dim = 16, .dtype = DType::f32};
const std::vector<double> kFrequencies = {1.0, 0.5, 0.25, 0.125, 0.1, 0.05, 0.02, 0.01};

/// Directions that pick channels `from` .. `from` + rank - 1 of the numbers of `group` heads.
std::shared_ptr<const LatentBasis> channels(int64_t group, int64_t from, int64_t rank, const LedgerPtr& ledger) {
  std::vector<float> directions(static_cast<size_t>(kShape.kv_heads * rank * kShape.head_dim));
  for (int64_t head = 0; head < kShape.kv_heads; ++head) {
    for (int64_t r = 0; r < rank; ++r) {
      const int64_t c = from + r - head % group * kShape.head_dim;
      if (c >= 0 && c < kShape.head_dim) directions[(head * rank + r) * kShape.head_dim + c] = 1;
    }
  }
  return std::make_shared<const LatentBasis>(kShape, rank, group, directions, ledger, /*model=*/false);
}

class Latents : public ::testing::Test {
 protected:
  /// Keys hold channels 8 to 23 of pairs of heads; values channels 0 to 3 of each head.
  LatentSegment segment() {
    return {kShape,
            {.latents = std::make_shared<LatentEntries>(kShape.kv_heads, 2, 4, ledger_),
             .keys = channels(2, 8, 16, ledger_),
             .values = channels(1, 0, 4, ledger_),
             .rotary = RotaryKeys(kFrequencies)},
            ledger_};
  }
  /// The next `n` entries, at positions from `position` on.
  void take(LatentSegment& segment, int64_t n, int64_t position) {
    EntrySegment tail(kShape, ledger_);
    const int64_t width = kShape.kv_heads * kShape.head_dim;
    std::vector<float> keys = testing::random_floats(n * width, "keys" + std::to_string(position));
    const std::vector<float> values = testing::random_floats(n * width, "values" + std::to_string(position));
    std::vector<float> rotated = keys;
    const RotaryKeys rotary(kFrequencies);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t h = 0; h < kShape.kv_heads; ++h) {
        const auto at = i * width + h * kShape.head_dim;
        rotary.redo(&rotated[at], {static_cast<int32_t>(position + i)});
        for (int64_t c = 0; c < kShape.head_dim; ++c) {
          const int64_t of_pair = h % 2 * kShape.head_dim + c;
          if (of_pair < 8 || of_pair >= 24) keys[at + c] = 0;  // lost
        }
        rotary.redo(&keys[at], {static_cast<int32_t>(position + i)});
      }
      expected_keys_.insert(expected_keys_.end(), &keys[i * width], &keys[i * width] + width);
      expected_values_.insert(expected_values_.end(), &values[i * width], &values[i * width] + width);
    }
    tail.append(rotated.data(), values.data(), n, width, position);
    segment.take(tail, n);
    EXPECT_EQ(tail.entries(0), 0);
  }
  void expect_content(const Segment& segment) {
    const int64_t n = segment.entries(0), width = kShape.kv_heads * kShape.head_dim;
    ASSERT_EQ(n * width, std::ssize(expected_keys_));
    for (int64_t h = 0; h < kShape.kv_heads; ++h) {
      std::vector<float> keys(static_cast<size_t>(n * kShape.head_dim)), values(keys.size());
      segment.read(h, keys.data(), values.data());
      for (int64_t i = 0; i < n * kShape.head_dim; ++i) {
        const int64_t c = i % kShape.head_dim, at = i / kShape.head_dim * width + h * kShape.head_dim + c;
        EXPECT_NEAR(keys[i], expected_keys_[at], 2e-3) << "head " << h << ", number " << i;
        EXPECT_NEAR(values[i], c < 4 ? expected_values_[at] : 0, 2e-3) << "head " << h << ", number " << i;
      }
    }
  }

  LedgerPtr ledger_ = std::make_shared<MemoryLedger>();
  std::vector<float> expected_keys_, expected_values_;  // [entries, kv_heads, head_dim]
};

TEST_F(Latents, ComeBackAlongTheirDirections) {
  LatentSegment latents = segment();
  take(latents, 600, 0);  // more than a chunk
  take(latents, 1, 600);
  expect_content(latents);
  take(latents, 3, 700);  // a gap
  EXPECT_EQ(latents.positions(2).back(), 702);
  expect_content(latents);
}

TEST_F(Latents, CountWhatTheyHoldAndCopiesAsMuch) {
  LatentSegment latents = segment();
  const int64_t directions = 2 * (4 * 16 * 16 + 4 * 4 * 16);
  EXPECT_EQ(latents.bytes(), directions);
  take(latents, 40, 0);
  EXPECT_EQ(latents.bytes(), directions + 2 * 40 * (2 * 16 + 4 * 4));
  const auto other = std::make_shared<MemoryLedger>();
  const std::unique_ptr<Segment> copy = latents.clone(other);
  EXPECT_EQ(copy->bytes(), latents.bytes());
  EXPECT_EQ(other->current(), latents.bytes());
  expect_content(*copy);
}

TEST_F(Latents, GoBackToTheirMark) {
  LatentSegment latents = segment();
  take(latents, 20, 0);
  const std::vector<float> keys = expected_keys_, values = expected_values_;
  latents.mark(std::make_shared<MemoryLedger>());
  take(latents, 5, 30);
  latents.rewind();
  expected_keys_ = keys;
  expected_values_ = values;
  expect_content(latents);
  take(latents, 2, 20);
  expect_content(latents);
  EXPECT_EQ(latents.positions(0).back(), 21);
}

}  // namespace
}  // namespace kvarena
