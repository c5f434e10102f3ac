#include "harness/cache/gathered_segment.h"

#include <gtest/gtest.h>

#include "harness/cache/entry_segment.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

constexpr LayerShape kShape{.q_heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};

TEST(ConcatView, HoldsWhatItsPartsHold) {
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto rows = testing::random_floats(5 * 32, "rows");
  auto own = std::make_unique<GatheredSegment>(kShape, 3, ledger);
  own->add(0, std::vector<int32_t>{1, 4}, rows.data(), rows.data());
  own->add(1, std::vector<int32_t>{0, 2, 5}, rows.data(), rows.data());
  EntrySegment tail(kShape, ledger);
  tail.append(rows.data(), rows.data(), 5, 32, 8);
  const int64_t bytes = own->bytes();
  const ConcatView view(std::move(own), {}, tail);
  EXPECT_EQ(view.entries(0), 2 + 5);
  EXPECT_EQ(view.entries(1), 3 + 5);
  EXPECT_EQ(view.positions(0), (std::vector<int32_t>{1, 4, 8, 9, 10, 11, 12}));
  EXPECT_EQ(view.positions(1), (std::vector<int32_t>{0, 2, 5, 8, 9, 10, 11, 12}));
  EXPECT_EQ(view.bytes(), bytes);
}

}  // namespace
}  // namespace kvarena
