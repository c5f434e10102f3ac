#include "harness/cache/entry_segment.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/cache/attend_plan.h"
#include "harness/cache/indexed_segment.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr LayerShape kShape{.q_heads = 6, .kv_heads = 2, .head_dim = 32, .dtype = DType::f32};
constexpr int64_t kRow = 2 * 32;  // floats of one token's keys over all kv heads

struct Tokens {
  explicit Tokens(int64_t n) : keys(random_floats(n * kRow, "keys")), values(random_floats(n * kRow, "values")), n(n) {}
  std::vector<float> keys;    // [n, kv_heads, head_dim]
  std::vector<float> values;  // [n, kv_heads, head_dim]
  int64_t n;
};

EntrySegment filled(const Tokens& tokens, const LedgerPtr& ledger, int64_t position = 0, LayerShape shape = kShape) {
  EntrySegment segment(shape, ledger);
  segment.append(tokens.keys.data(), tokens.values.data(), tokens.n, kRow, position);
  return segment;
}

struct Attended {
  std::vector<float> out, lse;
};

Attended attend(const std::vector<const Segment*>& segments, const std::vector<float>& q, int64_t q_len, bool causal) {
  Attended result{std::vector<float>(q_len * 6 * 32), std::vector<float>(q_len * 6)};
  std::vector<float> max(q_len * 6);
  std::vector<float> sum(q_len * 6);
  kernels::AttentionState state{.out = result.out.data(), .max = max.data(), .sum = sum.data()};
  kernels::init_attention(state, q_len, 6, 32);
  const LayerQueries queries{.q = q.data(), .q_len = q_len, .q_stride = 6 * 32};
  AttentionPlan plan{.queries = queries, .items = {}};
  for (const Segment* segment : segments) segment->plan(queries, plan);
  if (causal) plan.items.back().sees = {.rule = Visibility::Rule::newest};
  kvarena::attend(plan, state);
  kernels::finish_attention(state, q_len, 6, 32, result.lse.data());
  return result;
}

/// softmax(q k / sqrt(d)) v in double, over `visible` entries of the head.
std::vector<double> plain_attention(const float* q, const std::vector<float>& keys, const std::vector<float>& values,
                                    int64_t visible) {
  std::vector<double> out(32, 0.0);
  std::vector<double> scores;
  double max = -1e300;
  for (int64_t i = 0; i < visible; ++i) {
    double dot = 0;
    for (int64_t c = 0; c < 32; ++c) dot += static_cast<double>(q[c]) * keys[i * 32 + c];
    scores.push_back(dot / std::sqrt(32.0));
    max = std::max(max, scores.back());
  }
  double sum = 0;
  for (int64_t i = 0; i < visible; ++i) {
    const double p = std::exp(scores[i] - max);
    sum += p;
    for (int64_t c = 0; c < 32; ++c) out[c] += p * values[i * 32 + c];
  }
  for (double& x : out) x /= sum;
  return out;
}

TEST(EntrySegment, ReturnsWhatWasAppendedWithItsPositions) {
  auto ledger = std::make_shared<MemoryLedger>();
  const Tokens tokens(37);
  const EntrySegment segment = filled(tokens, ledger, 5);
  std::vector<float> keys(37 * 32);
  std::vector<float> values(37 * 32);
  for (int64_t head = 0; head < 2; ++head) {
    segment.read(head, keys.data(), values.data());
    for (int64_t i = 0; i < 37; ++i) {
      EXPECT_EQ(keys[i * 32 + 3], tokens.keys[i * kRow + head * 32 + 3]);
      EXPECT_EQ(values[i * 32 + 31], tokens.values[i * kRow + head * 32 + 31]);
    }
    EXPECT_EQ(segment.positions(head).front(), 5);
    EXPECT_EQ(segment.positions(head).back(), 41);
  }
  EXPECT_FALSE(segment.ragged());
}

TEST(EntrySegment, CountedBytesAreAllocatedBytes) {
  auto ledger = std::make_shared<MemoryLedger>();
  const Tokens tokens(100);
  EntrySegment segment = filled(tokens, ledger);
  EXPECT_EQ(segment.bytes(), ledger->current());
  EXPECT_LE(segment.bytes(), (100 + 15) * kShape.entry_bytes());
  segment.keep(std::vector<std::vector<int32_t>>{{1, 5, 9, 98}, {0, 2, 4, 6, 8, 10}});
  EXPECT_EQ(segment.bytes(), ledger->current());
  // One cell of 16 entries a head, and an int32 position an entry.
  EXPECT_EQ(segment.bytes(), 16 * kShape.entry_bytes() + 4 * (4 + 6));
}

TEST(EntrySegment, KeepsTheListedEntriesOfEachHead) {
  auto ledger = std::make_shared<MemoryLedger>();
  const Tokens tokens(40);
  EntrySegment segment = filled(tokens, ledger);
  segment.reserve_scores(1);
  segment.entry_scores(0)[17] = 3.0F;
  segment.keep(std::vector<std::vector<int32_t>>{{3, 17, 39}, {0, 1, 20, 21, 38}});
  EXPECT_TRUE(segment.ragged());
  EXPECT_EQ(segment.positions(0), (std::vector<int32_t>{3, 17, 39}));
  EXPECT_EQ(segment.positions(1), (std::vector<int32_t>{0, 1, 20, 21, 38}));
  EXPECT_EQ(segment.entry_scores(0)[1], 3.0F);
  std::vector<float> keys(5 * 32);
  segment.read(1, keys.data(), nullptr);
  EXPECT_EQ(keys[2 * 32 + 7], tokens.keys[20 * kRow + 32 + 7]);

  segment.append(tokens.keys.data(), tokens.values.data(), 2, kRow, 40);
  EXPECT_EQ(segment.positions(0), (std::vector<int32_t>{3, 17, 39, 40, 41}));
  segment.truncate(4);
  EXPECT_EQ(segment.positions(0), (std::vector<int32_t>{3, 17, 39, 40}));
}

TEST(EntrySegment, DroppingTheFrontKeepsTheRest) {
  auto ledger = std::make_shared<MemoryLedger>();
  const Tokens tokens(50);
  EntrySegment segment = filled(tokens, ledger);
  segment.drop_front(33);
  EXPECT_EQ(segment.positions(1).front(), 33);
  std::vector<float> values(17 * 32);
  segment.read(1, nullptr, values.data());
  EXPECT_EQ(values[0], tokens.values[33 * kRow + 32]);
  EXPECT_EQ(values[16 * 32 + 1], tokens.values[49 * kRow + 32 + 1]);
}

TEST(EntrySegment, AttendsAsTheFormulaSays) {
  auto ledger = std::make_shared<MemoryLedger>();
  const int64_t n = 70;
  const int64_t q_len = 3;
  const Tokens tokens(n);
  const EntrySegment segment = filled(tokens, ledger);
  const auto q = random_floats(q_len * 6 * 32, "q");
  const Attended result = attend({&segment}, q, q_len, true);
  std::vector<float> keys(n * 32);
  std::vector<float> values(n * 32);
  for (int64_t head = 0; head < 6; ++head) {
    segment.read(head / 3, keys.data(), values.data());
    for (int64_t t = 0; t < q_len; ++t) {
      const auto expected = plain_attention(&q[(t * 6 + head) * 32], keys, values, n - (q_len - 1 - t));
      for (int64_t c = 0; c < 32; ++c) EXPECT_NEAR(result.out[(t * 6 + head) * 32 + c], expected[c], 2e-6);
    }
  }
}

TEST(EntrySegment, RaggedEqualsDenseOverTheSameEntries) {
  auto ledger = std::make_shared<MemoryLedger>();
  const Tokens tokens(80);
  EntrySegment segment = filled(tokens, ledger);
  const EntrySegment dense = filled(tokens, ledger);
  std::vector<std::vector<int32_t>> kept(2);
  for (int32_t i = 0; i < 80; i += 3) kept[0].push_back(i);
  for (int32_t i = 1; i < 80; i += 2) kept[1].push_back(i);
  const IndexedSegment view(dense, kept, ledger);
  segment.keep(kept);
  const auto q = random_floats(6 * 32, "q");
  const Attended ragged = attend({&segment}, q, 1, false);
  const Attended indexed = attend({&view}, q, 1, false);
  EXPECT_EQ(ragged.out, indexed.out);
  EXPECT_EQ(ragged.lse, indexed.lse);
}

TEST(EntrySegment, SplittingACacheIntoSegmentsChangesNothingButRounding) {
  auto ledger = std::make_shared<MemoryLedger>();
  const Tokens tokens(90);
  const EntrySegment whole = filled(tokens, ledger);
  EntrySegment first(kShape, ledger);
  first.append(tokens.keys.data(), tokens.values.data(), 41, kRow, 0);
  EntrySegment second(kShape, ledger);
  second.append(tokens.keys.data() + 41 * kRow, tokens.values.data() + 41 * kRow, 49, kRow, 41);
  const auto q = random_floats(2 * 6 * 32, "q");
  const Attended a = attend({&whole}, q, 2, true);
  const Attended b = attend({&first, &second}, q, 2, true);
  for (size_t i = 0; i < a.out.size(); ++i) EXPECT_NEAR(a.out[i], b.out[i], 1e-6);
}

TEST(EntrySegment, ProbabilitiesSumToOneAndFollowTheScores) {
  auto ledger = std::make_shared<MemoryLedger>();
  const Tokens tokens(33);
  const EntrySegment segment = filled(tokens, ledger);
  const auto q = random_floats(6 * 32, "q");
  const Attended result = attend({&segment}, q, 1, true);
  std::vector<float> sums(6 * 40, 0.0F);
  add_probabilities(segment.plan_newest({.q = q.data(), .q_len = 1, .q_stride = 6 * 32}), result.lse.data(),
                    sums.data(), 40);
  for (int64_t head = 0; head < 6; ++head) {
    double total = 0;
    for (int64_t i = 0; i < 33; ++i) total += sums[head * 40 + i];
    EXPECT_NEAR(total, 1.0, 1e-5);
    EXPECT_EQ(sums[head * 40 + 33], 0.0F);
  }
}

TEST(EntrySegment, CloneIsIndependentAndCountedInItsOwnLedger) {
  auto ledger = std::make_shared<MemoryLedger>();
  auto other = std::make_shared<MemoryLedger>();
  const Tokens tokens(20);
  EntrySegment segment = filled(tokens, ledger);
  const auto copy = segment.clone(other);
  EXPECT_EQ(copy->bytes(), other->current());
  segment.truncate(1);
  EXPECT_EQ(copy->entries(0), 20);
}

TEST(EntrySegment, AppendingFromAnotherSegmentCopiesBits) {
  auto ledger = std::make_shared<MemoryLedger>();
  const Tokens tokens(40);
  const LayerShape half{.q_heads = 6, .kv_heads = 2, .head_dim = 32, .dtype = DType::bf16};
  const EntrySegment from = filled(tokens, ledger, 0, half);
  EntrySegment to(half, ledger);
  to.append_entries(from, 11, 20);
  std::vector<float> a(40 * 32);
  std::vector<float> b(20 * 32);
  from.read(1, a.data(), nullptr);
  to.read(1, b.data(), nullptr);
  EXPECT_EQ(std::vector<float>(a.begin() + 11 * 32, a.begin() + 31 * 32), b);
  EXPECT_EQ(to.positions(0).front(), 11);
}

/// Rows of a head, keys and then values.
std::vector<float> rows_of(const EntrySegment& segment, int64_t head) {
  const int64_t floats = segment.entries(head) * segment.shape().head_dim;
  std::vector<float> rows(static_cast<size_t>(2 * floats));
  segment.read(head, rows.data(), rows.data() + floats);
  return rows;
}

TEST(EntrySegment, AppendsWhatItSavedBitForBitFromAnyPlaceToAnyPlace) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    LayerShape shape = kShape;
    shape.dtype = dtype;
    const Tokens tokens(83);
    const auto ledger = std::make_shared<MemoryLedger>();
    const EntrySegment whole = filled(tokens, ledger, 5, shape);
    for (const int64_t first : {0, 16, 21}) {
      for (const int64_t count : {0, 7, 16, 50, 62}) {
        for (const int64_t before : {0, 16, 3}) {
          SCOPED_TRACE(fmt::format("{} at {} behind {}", count, first, before));
          std::vector<std::vector<std::byte>> bytes;
          std::vector<EntrySegment::SavedHead> heads;
          for (int64_t head = 0; head < shape.kv_heads; ++head) {
            bytes.emplace_back(static_cast<size_t>(1 + whole.saved_bytes(count)));
            const std::span<std::byte> unaligned = std::span(bytes.back()).subspan(1);
            whole.save(head, first, count, unaligned);
            heads.push_back({.positions = {}, .count = count, .bytes = unaligned});
          }
          ASSERT_EQ(whole.saved_bytes(count), 2 * count * 32 * (dtype == DType::f32 ? 4 : 2));
          EntrySegment back(shape, ledger), expected(shape, ledger);
          for (EntrySegment* segment : {&back, &expected}) segment->append_entries(whole, first, before);
          back.append_saved(heads, 5 + first);
          expected.append_entries(whole, first, count);
          for (int64_t head = 0; head < shape.kv_heads; ++head) {
            EXPECT_EQ(back.positions(head), expected.positions(head));
            EXPECT_EQ(rows_of(back, head), rows_of(expected, head));
          }
          EXPECT_FALSE(back.ragged());
        }
      }
    }
  }
}

TEST(EntrySegment, TakesHeadsOfTheirOwnAsTheyWereSaved) {
  const auto ledger = std::make_shared<MemoryLedger>();
  EntrySegment ragged = filled(Tokens(40), ledger);
  const std::vector<std::vector<int32_t>> kept = {{0, 3, 4, 17, 39}, {}};
  ragged.keep(kept);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<EntrySegment::SavedHead> heads;
  for (int64_t head = 0; head < kShape.kv_heads; ++head) {
    const int64_t count = ragged.entries(head);
    bytes.emplace_back(static_cast<size_t>(ragged.saved_bytes(count)));
    ragged.save(head, 0, count, bytes.back());
    heads.push_back({.positions = ragged.positions(head), .count = count, .bytes = bytes.back()});
  }
  EntrySegment back(kShape, ledger);
  back.append_saved(heads, std::nullopt);
  EXPECT_TRUE(back.ragged());
  for (int64_t head = 0; head < kShape.kv_heads; ++head) {
    EXPECT_EQ(back.positions(head), kept[static_cast<size_t>(head)]);
    EXPECT_EQ(rows_of(back, head), rows_of(ragged, head));
  }
}

}  // namespace
}  // namespace kvarena
