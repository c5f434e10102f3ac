// A recurrent layer's state: any cut of its tokens gives the same bits, going back gives those of never having gone on,
// and clones share memory until one of them advances.

#include "harness/cache/recurrent_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena {
namespace {

constexpr int64_t kTokens = 19;

class RecurrentStateTest : public ::testing::Test {
 protected:
  RecurrentStateTest()
      : convolution_(draws(4 * shape_.channels(), "taps")), rows_(draws(kTokens * shape_.row(), "rows")) {
    shape_.convolution = convolution_.data();
    for (int64_t t = 0; t < kTokens; ++t) {  // decays and betas
      for (int64_t i = shape_.channels(); i < shape_.row(); ++i) {
        float& gate = rows_[t * shape_.row() + i];
        gate = 1 / (1 + std::exp(-gate));
      }
    }
  }

  static std::vector<float> draws(int64_t count, const char* purpose) {
    const RandomStream stream(3, purpose);
    std::vector<float> numbers;
    for (int64_t i = 0; i < count; ++i)
      numbers.push_back(static_cast<float>(2 * stream.uniform(static_cast<uint64_t>(i)) - 1));
    return numbers;
  }

  /// Takes tokens first .. end-1, so many at once, and returns what they read.
  std::vector<float> feed(RecurrentState& state, int64_t first, int64_t end, int64_t chunk = kTokens) const {
    const int64_t values = shape_.v_heads * shape_.v_dim;
    std::vector<float> read(static_cast<size_t>((end - first) * values));
    for (int64_t t = first; t < end; t += chunk) {
      const int64_t count = std::min(chunk, end - t);
      state.advance(rows_.data() + t * shape_.row(), count, shape_.row(), read.data() + (t - first) * values);
    }
    return read;
  }
  static std::vector<float> numbers(const RecurrentState& state) {
    return {state.numbers().begin(), state.numbers().end()};
  }
  [[nodiscard]] RecurrentState fresh() const { return {shape_, std::make_shared<MemoryLedger>()}; }

  RecurrentShape shape_{.k_heads = 2, .v_heads = 4, .k_dim = 16, .v_dim = 24, .taps = 4};
  std::vector<float> convolution_, rows_;
};

TEST_F(RecurrentStateTest, AnyCutOfTheTokensGivesTheSameBits) {
  RecurrentState whole = fresh();
  const std::vector<float> read = feed(whole, 0, kTokens);
  for (const int64_t chunk : {1, 2, 3, 7, 16}) {
    RecurrentState cut = fresh();
    EXPECT_EQ(feed(cut, 0, kTokens, chunk), read) << chunk;
    EXPECT_EQ(numbers(cut), numbers(whole)) << chunk;
    EXPECT_EQ(cut.tokens(), kTokens);
  }
}

TEST_F(RecurrentStateTest, GoingBackGivesTheBitsOfNeverHavingGoneOn) {
  for (const int64_t held : {0, 1, 5}) {
    for (int64_t back = held; back <= kTokens; ++back) {
      RecurrentState state = fresh();
      (void)feed(state, 0, held);
      state.hold();
      (void)feed(state, held, kTokens, 4);
      state.rewind(back);
      RecurrentState plain = fresh();
      (void)feed(plain, 0, back);
      EXPECT_EQ(numbers(state), numbers(plain)) << held << " held, back to " << back;
      EXPECT_EQ(feed(state, back, kTokens), feed(plain, back, kTokens));
      state.rewind(held);  // again
      EXPECT_EQ(state.tokens(), held);
    }
  }
}

TEST_F(RecurrentStateTest, GoesBackNoFurtherThanItHolds) {
  RecurrentState state = fresh();
  (void)feed(state, 0, 4);
  EXPECT_THROW(state.rewind(3), InternalError);
  state.hold();
  (void)feed(state, 4, 6);
  EXPECT_THROW(state.rewind(3), InternalError);
  EXPECT_THROW(state.rewind(7), InternalError);
  state.release();
  EXPECT_THROW(state.rewind(5), InternalError);
}

TEST_F(RecurrentStateTest, ClonesShareMemoryUntilOneAdvances) {
  RecurrentState state = fresh();
  (void)feed(state, 0, 4);
  const auto ledger = std::make_shared<MemoryLedger>();
  RecurrentState copy = state.clone(ledger);
  EXPECT_EQ(copy.numbers().data(), state.numbers().data());
  EXPECT_EQ(ledger->current(Tier::device), shape_.bytes());
  const std::vector<float> before = numbers(state);
  (void)feed(copy, 4, 9);
  EXPECT_EQ(numbers(state), before);
  RecurrentState plain = fresh();
  (void)feed(plain, 0, 9);
  EXPECT_EQ(numbers(copy), numbers(plain));
}

TEST_F(RecurrentStateTest, CountsWhatItHoldsBack) {
  const auto ledger = std::make_shared<MemoryLedger>();
  RecurrentState state(shape_, ledger);
  EXPECT_EQ(state.bytes(), shape_.bytes());
  state.hold();
  (void)feed(state, 0, 3);
  EXPECT_GE(state.bytes(), 2 * shape_.bytes() + 3 * shape_.row() * 4);
  EXPECT_EQ(ledger->current(Tier::device), state.bytes());
  state.release();
  EXPECT_EQ(state.bytes(), shape_.bytes());
  EXPECT_EQ(ledger->current(Tier::device), shape_.bytes());
}

TEST_F(RecurrentStateTest, StatesOfACacheFollowItsLength) {
  const LayerShape entries{.q_heads = 1, .kv_heads = 1, .head_dim = 16, .dtype = kernels::DType::f32};
  KvCache cache(std::span(&entries, 1), std::span(&shape_, 1));
  const std::vector<float> row(static_cast<size_t>(kTokens * 16), 1.0F);
  const auto append = [&](int64_t count) {
    cache.layers[0].append(row.data(), row.data(), count, 16, cache.length);
    (void)feed(cache.states[0], cache.length, cache.length + count);
    cache.length += count;
  };
  append(6);
  const int64_t without = cache.bytes();
  cache.hold_states();
  append(5);
  cache.truncate(8);
  EXPECT_EQ(cache.states[0].tokens(), 8);
  RecurrentState plain = fresh();
  (void)feed(plain, 0, 8);
  EXPECT_EQ(numbers(cache.states[0]), numbers(plain));
  EXPECT_GT(cache.bytes(), without + shape_.bytes());
  EXPECT_EQ(cache.bytes(), cache.ledger->current(Tier::device));
  cache.release_states();
  EXPECT_EQ(cache.state_bytes(), shape_.bytes());

  KvCache clone = cache.clone();
  EXPECT_EQ(clone.states[0].numbers().data(), cache.states[0].numbers().data());
  EXPECT_EQ(clone.bytes(), clone.ledger->current(Tier::device));
}

}  // namespace
}  // namespace kvarena
