// IMPRESS' order of chunks, by hand; what it chooses of a context is held by
// tests/harness/engine/stored/cache_chunks_test.cpp. No package computes either.

#include "tests/methods/eviction/plain_tiers.h"

namespace kvarena::storage {
namespace {

class Impress : public ::testing::Test {
 protected:
  Impress()
      : method_(testing::named({{"name", "impress"}})),
        books_({{.name = "memory", .capacity = 2, .bandwidth = 1}, {.name = "disk", .bandwidth = 1}},
               *method_->placement()) {}

  void store(int64_t id, double importance, int64_t accesses = 1) {
    now_ += 1;
    (void)books_.store({.id = id,
                        .forms = {{.bytes = 1}},
                        .accesses = accesses,
                        .stored_at = now_,
                        .last_access = now_,
                        .importance = importance});
  }
  void read(int64_t id) { (void)books_.access(id, now_ += 1); }
  [[nodiscard]] int64_t tier(int64_t id) const { return books_.find(id)->at.tier; }

  std::unique_ptr<Method> method_;
  TieredContexts books_;
  double now_ = 0;
};

TEST_F(Impress, ReadsTimesImportantShareDecide) {
  store('A', 0.5, 3);  // 1.5, though it was read most often
  store('B', 1, 2);    // 2
  store('C', 0.8, 2);  // 1.6
  EXPECT_EQ(tier('A'), 1);
  EXPECT_EQ(tier('B'), 0);
  EXPECT_EQ(tier('C'), 0);
}

TEST_F(Impress, AmongEqualsTheLeastRecentlyReadLeaves) {
  store('A', 0.5, 2);
  store('B', 1, 1);
  store('C', 0.25, 8);
  EXPECT_EQ(tier('A'), 1);
  EXPECT_EQ(tier('B'), 0);
}

TEST_F(Impress, WhatIsReadComesUpOnceItIsWorthMoreThanSomethingThere) {
  store('A', 1, 2);
  store('B', 1, 3);
  store('C', 0.75, 1);
  EXPECT_EQ(tier('C'), 1);
  read('C');  // 1.5
  EXPECT_EQ(tier('C'), 1);
  read('C');  // 2.25, more than A
  EXPECT_EQ(tier('C'), 0);
  EXPECT_EQ(tier('A'), 1);
}

TEST_F(Impress, WhatNobodyNeedsLeavesHoweverOftenItWasStored) {
  store('A', 0, 100);
  store('B', 0.1);
  store('C', 0.1);
  EXPECT_EQ(tier('A'), 1);
}

}  // namespace
}  // namespace kvarena::storage
