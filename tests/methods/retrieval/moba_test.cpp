// MoBA's gate: what the authors' code selects (tests/golden/retrieval_methods.py), drafts that are taken back.

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using testing::list_of;
using testing::random_floats;
using Request = testing::RetrievalRequest;

TEST(Moba, SelectsAsTheAuthorsCode) { testing::expect_golden_selections("moba"); }

TEST(Moba, ADraftThatWasTakenBackLeavesNothingInTheMeans) {
  const nlohmann::json spec = {{"name", "moba"}, {"block", 8}, {"tokens", 24}};
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Request plain(spec, 60, seed), drafted(spec, 60, seed);
    const auto q = random_floats(Request::kQuery, "q", seed);
    for (uint64_t i = 0; i < 3; ++i) {  // of the block that 60 begins to fill
      drafted.append(std::vector<float>(static_cast<size_t>(Request::kRow), 9.0F));
      (void)drafted.select(q);
    }
    drafted.cache.truncate(60);
    drafted.cache.layers[0].index->entries = 60;
    drafted.keys.resize(static_cast<size_t>(60 * Request::kRow));
    drafted.n = 60;
    for (uint64_t i = 0; i < 9; ++i) {
      plain.append(100 * seed + i);
      drafted.append(100 * seed + i);
    }
    const IndexedSegment* expected = plain.select(q);
    const IndexedSegment* found = drafted.select(q);
    ASSERT_NE(expected, nullptr);
    ASSERT_NE(found, nullptr);
    for (int64_t head = 0; head < 4; ++head)
      EXPECT_EQ(list_of(found->selected(head)), list_of(expected->selected(head))) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kvarena
