#include "harness/storage/placement/tiered_contexts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "harness/core/error.h"

namespace kvarena::storage {
namespace {

/// Oldest first.
class Oldest final : public VictimPolicy {
 public:
  explicit Oldest(bool promotes = false) : promotes_(promotes) {}
  bool leaves_before(const Context& a, const Context& b) const override { return a.stored_at < b.stored_at; }
  bool promotes_on_hit() const override { return promotes_; }

 private:
  bool promotes_;
};

/// Places as it is told, to reach states that need moves in a circle.
class Scripted final : public Policy {
 public:
  Choice first(const Context& context, std::span<const StorageTier> /*tiers*/) const override {
    return wanted[static_cast<size_t>(context.id)];
  }
  Step make_room(const View& /*view*/, int64_t /*tier*/) const override { throw InternalError("the script fits"); }
  bool rearranges() const override { return true; }

  std::vector<Choice> wanted;
};

Context of_bytes(int64_t id, int64_t bytes) {
  return {.id = id, .forms = {{.bytes = bytes}}, .stored_at = static_cast<double>(id)};
}

std::vector<StorageTier> tiers(int64_t fast, int64_t middle) {
  return {{.name = "host", .capacity = fast, .bandwidth = 10},
          {.name = "disk", .capacity = middle, .bandwidth = 1},
          {.name = "remote", .bandwidth = 0.1}};
}

TEST(TieredContexts, RoomIsMadeFromTheBottomUpBeforeANewContextComes) {
  const Oldest policy;
  TieredContexts books(tiers(10, 10), policy);
  (void)books.store(of_bytes(0, 10));
  (void)books.store(of_bytes(1, 10));
  const std::vector<Move> moves = books.store(of_bytes(2, 10));
  ASSERT_EQ(moves.size(), 3U);
  EXPECT_EQ(moves[0].id, 0);  // disk to remote
  EXPECT_EQ(moves[0].to->tier, 2);
  EXPECT_EQ(moves[1].id, 1);  // host to disk
  EXPECT_EQ(moves[1].to->tier, 1);
  EXPECT_EQ(moves[2].id, 2);
  EXPECT_FALSE(moves[2].from.has_value());
  EXPECT_EQ(books.used(0), 10);
  EXPECT_EQ(books.used(1), 10);
  EXPECT_EQ(books.used(2), 10);
  EXPECT_EQ(books.written(0), 30);
}

TEST(TieredContexts, SeveralThatComeTogetherFindRoomThatWasMadeOnce) {
  const Oldest promotes(true);
  TieredContexts books(tiers(10, 10), promotes);
  (void)books.store(of_bytes(0, 10));
  std::vector<Move> moves = books.store_all({of_bytes(1, 4), of_bytes(2, 4), of_bytes(3, 4)});
  ASSERT_EQ(moves.size(), 4U);
  EXPECT_EQ(moves[0].id, 0);  // twelve bytes are too many, but its ten go first and the oldest newcomer after it
  EXPECT_EQ(moves[0].to->tier, 2);
  EXPECT_EQ(books.find(1)->at.tier, 1);
  EXPECT_EQ(books.used(0), 8);
  EXPECT_LE(books.peak(0), 10);
  const std::vector<int64_t> read = {1, 3};
  EXPECT_TRUE(books.access_all(read, 9).empty()) << "the oldest leaves again";
  for (const int64_t id : {1, 3}) EXPECT_EQ(books.find(id)->accesses, 2);
  EXPECT_EQ(books.find(2)->accesses, 1);
}

TEST(TieredContexts, TenThousandChunksSettleInSeconds) {
  constexpr int64_t kContexts = 12, kChunks = 900;
  const Oldest promotes(true);
  TieredContexts books(tiers(2 * kChunks, 4 * kChunks), promotes);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t context = 0; context < kContexts; ++context) {
    std::vector<Context> chunks;
    for (int64_t i = 0; i < kChunks; ++i) chunks.push_back(of_bytes(context * kChunks + i, 1));
    (void)books.store_all(std::move(chunks));
  }
  std::vector<int64_t> read(kChunks);
  for (int64_t context = 0; context < kContexts; ++context) {
    std::iota(read.begin(), read.end(), context * kChunks);
    (void)books.access_all(read, 1e6);
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 60) << "3 s alone";
  EXPECT_EQ(books.used(0), 2 * kChunks);
  EXPECT_EQ(books.used(1), 4 * kChunks);
}

TEST(TieredContexts, AContextLargerThanATierSkipsIt) {
  const Oldest policy;
  TieredContexts books(tiers(5, 100), policy);
  (void)books.store(of_bytes(0, 10));
  EXPECT_EQ(books.find(0)->at.tier, 1);
  (void)books.store(of_bytes(1, 1000));
  EXPECT_EQ(books.find(1)->at.tier, 2);
}

TEST(TieredContexts, AHitBringsAContextUpWhereThePolicySaysSo) {
  const Oldest promotes(true);
  TieredContexts books(tiers(10, 100), promotes);
  (void)books.store(of_bytes(0, 10));
  (void)books.store(of_bytes(1, 10));
  ASSERT_EQ(books.find(0)->at.tier, 1);
  // Context 0 comes up and is at once the oldest of a full tier: it leaves again, and nothing has moved.
  EXPECT_TRUE(books.access(0, 5).empty());
  (void)books.remove(1);
  const std::vector<Move> moves = books.access(0, 6);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(books.find(0)->at.tier, 0);
  EXPECT_EQ(books.find(0)->accesses, 3);
}

TEST(TieredContexts, ContextsThatWaitForEachOtherGoByTheLastTier) {
  Scripted script;
  script.wanted = {{.form = 0, .tier = 0}, {.form = 0, .tier = 1}};
  TieredContexts books(tiers(10, 10), script);
  (void)books.store(of_bytes(0, 10));
  (void)books.store(of_bytes(1, 10));
  std::swap(script.wanted[0], script.wanted[1]);
  const std::vector<Move> moves = books.rearrange();
  ASSERT_EQ(moves.size(), 3U);
  EXPECT_EQ(moves[0].to->tier, 2);
  EXPECT_EQ(books.find(0)->at.tier, 1);
  EXPECT_EQ(books.find(1)->at.tier, 0);
  EXPECT_LE(books.peak(0), 10);
  EXPECT_LE(books.peak(1), 10);
}

}  // namespace
}  // namespace kvarena::storage
