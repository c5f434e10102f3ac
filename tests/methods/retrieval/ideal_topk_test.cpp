// Ideal top-k against its definition in double, which is its restatement (arXiv:2503.16163, section 3.1).

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::largest;
using testing::list_of;
using testing::random_floats;
using Request = testing::RetrievalRequest;

json ideal(int64_t tokens, const char* gqa = "mean") {
  return {{"name", "ideal_topk"}, {"tokens", tokens}, {"gqa", gqa}};
}

/// Attention mass of a selection, mean over the query heads of a kv head.
double mass(const Request& request, const std::vector<float>& q, int64_t kv_head, const IndexedSegment& view) {
  double total = 0;
  for (int64_t head = kv_head * 2; head < kv_head * 2 + 2; ++head) {
    const std::vector<double> p = request.attention(q, head, request.n);
    for (const int32_t i : view.selected(head)) total += p[i];
  }
  return total / 2;
}

TEST(IdealTopK, TakesTheLargestMeanAttentionAndTheNewest) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Request request(ideal(25), 210, seed);
    const auto q = random_floats(Request::kQuery, "q", seed);
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 2; ++head) {
      std::vector<double> mean = request.attention(q, 2 * head, 210);
      const std::vector<double> other = request.attention(q, 2 * head + 1, 210);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += other[i];
      std::vector<int32_t> expected = largest(mean, 0, 209, 24);
      expected.push_back(209);
      EXPECT_EQ(view->positions(head), expected) << "seed " << seed;
    }
  }
}

TEST(IdealTopK, SinksAndRecentEntriesCountInTheBudget) {
  for (const auto& [sinks, recent] : {std::pair("sinks", "recent"), std::pair("protect_sinks", "protect_window")}) {
    json spec = ideal(25, "none");
    spec[sinks] = 4;
    spec[recent] = 6;
    Request request(spec, 210, 5);
    const auto q = random_floats(Request::kQuery, "q", 5);
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      std::vector<int32_t> expected = {0, 1, 2, 3};
      const auto best = largest(request.attention(q, head, 210), 4, 204, 15);
      expected.insert(expected.end(), best.begin(), best.end());
      for (int32_t i = 204; i < 210; ++i) expected.push_back(i);
      EXPECT_EQ(list_of(view->selected(head)), expected) << sinks;
    }
    EXPECT_EQ(request.activity.entries_skipped, 4 * 185);
  }
}

TEST(IdealTopK, ProtectionThatExceedsTheBudgetGivesWaySinksLast) {
  json spec = ideal(5);
  spec["sinks"] = 4;
  spec["recent"] = 100;
  Request request(spec, 40, 5);
  EXPECT_EQ(request.select(random_floats(Request::kQuery, "q"))->positions(0),
            (std::vector<int32_t>{35, 36, 37, 38, 39}));
}

TEST(IdealTopK, MoreBudgetNeverCoversLessAndQueryHeadsAloneCoverMost) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const auto q = random_floats(Request::kQuery, "q", seed);
    double before = 0;
    for (const int64_t budget : {4, 16, 64, 150}) {
      Request mean(ideal(budget), 200, seed);
      Request alone(ideal(budget, "none"), 200, seed);
      Request quest({{"name", "quest"}, {"tokens", budget}, {"dense_layers", 0}, {"min_pages", 1}}, 200, seed);
      const double covered = mass(mean, q, 0, *mean.select(q));
      EXPECT_GE(covered, before) << "seed " << seed;
      EXPECT_GE(mass(alone, q, 0, *alone.select(q)) + 1e-6, covered) << "seed " << seed;
      if (budget >= 16) {
        EXPECT_GE(covered + 1e-6, mass(quest, q, 0, *quest.select(q))) << "seed " << seed;
      }
      before = covered;
    }
  }
}

TEST(IdealTopK, AQueryIsTheSameWhateverWasAskedBefore) {
  Request request(ideal(20), 100, 3);
  const auto q = random_floats(Request::kQuery, "q", 1);
  const auto first = request.select(q)->positions(1);
  (void)request.select(random_floats(Request::kQuery, "q", 2));
  EXPECT_EQ(request.select(q)->positions(1), first);
  EXPECT_EQ(request.cache.bytes(), 112 * Request::kShape.entry_bytes());  // whole cells and nothing else
}

TEST(IdealTopK, ANumberThatIsNoneIsAnErrorThatNamesTheMethod) {
  Request request(ideal(20), 100, 3);
  auto q = random_floats(Request::kQuery, "q", 1);
  q[40] = NAN;
  try {
    (void)request.select(q);
    FAIL() << "a query of NaN was selected for";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("ideal_topk"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kvarena
