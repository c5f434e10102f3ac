// Quest's pages: the hand example of its definition, budgets, the newest page, and selections of its authors' code
// (tests/golden/retrieval_methods.py).

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;
using Request = testing::RetrievalRequest;

json quest(int64_t tokens) { return {{"name", "quest"}, {"tokens", tokens}, {"dense_layers", 0}}; }

/// U(page) by the formula, in double: the best of the group's heads.
double bound(const Request& request, const std::vector<float>& q, int64_t kv_head, int64_t page) {
  double best = -1e300;
  for (int64_t head = kv_head * 2; head < kv_head * 2 + 2; ++head) {
    double total = 0;
    for (int64_t c = 0; c < 16; ++c) {
      float low = 1e9F;
      float high = -1e9F;
      for (int64_t i = page * 16; i < std::min(request.n, page * 16 + 16); ++i) {
        low = std::min(low, request.key(kv_head, i)[c]);
        high = std::max(high, request.key(kv_head, i)[c]);
      }
      const double x = q[head * 16 + c];
      total += std::max(x * low, x * high);
    }
    best = std::max(best, total);
  }
  return best;
}

TEST(QuestSelect, TakesTheNewestPageAndTheLargestBounds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Request request(quest(80), 333, seed);  // 21 pages, the last one partial; 5 are attended
    const auto q = random_floats(64, "q", seed);
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 2; ++head) {
      std::vector<std::pair<double, int64_t>> ranked;
      for (int64_t page = 0; page < 20; ++page) ranked.emplace_back(-bound(request, q, head, page), page);
      std::ranges::sort(ranked);
      std::vector<int32_t> expected;
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t e = 0; e < 16; ++e) expected.push_back(static_cast<int32_t>(ranked[i].second * 16 + e));
      }
      for (int32_t e = 320; e < 333; ++e) expected.push_back(e);
      std::ranges::sort(expected);
      EXPECT_EQ(view->positions(head), expected) << "seed " << seed;
    }
  }
}

TEST(QuestSelect, AtLeastThreePagesWhateverTheBudget) {
  Request request(quest(16), 200, 3);
  EXPECT_EQ(request.select(random_floats(64, "q"))->entries(0), 16 + 16 + 8);
}

TEST(QuestSelect, ABudgetThatCoversEverythingSelectsNothing) {
  Request request(quest(200), 200, 3);
  EXPECT_EQ(request.select(random_floats(64, "q")), nullptr);
  EXPECT_EQ(request.activity.entries_skipped, 0);
}

TEST(QuestSelect, CanSelectForEachQueryHead) {
  json spec = quest(64);
  spec["gqa"] = "none";
  Request request(spec, 400, 9);
  const IndexedSegment* view = request.select(random_floats(64, "q"));
  ASSERT_NE(view, nullptr);
  EXPECT_NE(std::vector<int32_t>(view->selected(0).begin(), view->selected(0).end()),
            std::vector<int32_t>(view->selected(1).begin(), view->selected(1).end()));
}

TEST(QuestSelect, GeneratedEntriesCanBeAttendedBesideThePagesOfThePrompt) {
  json spec = quest(64);
  spec["generated"] = "attended";
  Request request(spec, 200, 4);
  for (uint64_t i = 0; i < 90; ++i) request.append(i);
  const auto q = random_floats(64, "q");
  const IndexedSegment* view = request.select(q);
  ASSERT_NE(view, nullptr);
  std::vector<double> bounds;  // bounds of the prompt's 13 pages, the last with 8 entries
  request.n = 200;
  for (int64_t page = 0; page < 13; ++page) bounds.push_back(bound(request, q, 0, page));
  std::vector<int32_t> expected;
  for (const int32_t page : testing::largest(bounds, 0, 13, 4)) {
    for (int32_t e = page * 16; e < std::min(200, page * 16 + 16); ++e) expected.push_back(e);
  }
  for (int32_t e = 200; e < 290; ++e) expected.push_back(e);
  EXPECT_EQ(view->positions(0), expected);
  // A prompt within the budget is attended whole, however much was generated.
  Request short_prompt(spec, 64, 4);
  for (uint64_t i = 0; i < 90; ++i) short_prompt.append(i);
  EXPECT_EQ(short_prompt.select(q), nullptr);
}

TEST(QuestIndex, TakesOneEntryAPage) {
  // Two float32 bounds a channel and page of 16 entries of two float32 numbers a channel: one sixteenth.
  Request request(quest(64), 512, 1);
  EXPECT_EQ(request.cache.bytes(), 512 * Request::kShape.entry_bytes() * 17 / 16);
}

TEST(QuestSelect, SelectsWhatItsAuthorsDo) { testing::expect_golden_selections("quest"); }

}  // namespace
}  // namespace kvarena
