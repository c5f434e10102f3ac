// PillarAttn: what the last full step attended to, restated in double from arXiv:2512.01278, section 4.

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::largest;
using testing::list_of;
using testing::random_floats;
using Request = testing::RetrievalRequest;

TEST(PillarAttention, HoldsWhatTheLastFullStepAttendedTo) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    constexpr int64_t kStride = 3;
    Request request({{"name", "pillar_attn"}, {"tokens", 20}, {"stride", kStride}}, 80, seed);
    std::vector<std::vector<float>> since;  // queries since the last full step, this one's included
    std::vector<std::vector<double>> scores;
    int64_t refreshed = 0;
    int64_t averaged = 0;
    for (uint64_t step = 0; step < 14; ++step) {
      request.append(seed * 50 + step);
      const auto q = random_floats(Request::kQuery, "q", seed * 50 + step);
      since.push_back(q);
      const IndexedSegment* view = request.select(q);
      if (step % (kStride + 1) == 0) {
        EXPECT_EQ(view, nullptr) << "step " << step;
        refreshed = request.n;
        averaged = static_cast<int64_t>(since.size());
        scores.assign(2, std::vector<double>(static_cast<size_t>(refreshed)));
        for (int64_t head = 0; head < 4; ++head) {
          std::vector<double> sums(static_cast<size_t>(refreshed));
          for (int64_t t = 0; t < averaged; ++t) {
            const auto p = request.attention(since[t], head, refreshed - (averaged - 1 - t));
            for (size_t i = 0; i < p.size(); ++i) sums[i] += p[i];
          }
          for (int64_t i = 0; i < refreshed; ++i) {
            scores[head / 2][i] += sums[i] / static_cast<double>(2 * std::min(averaged, refreshed - i));
          }
        }
        since.clear();
      } else {
        ASSERT_NE(view, nullptr) << "step " << step;
        for (int64_t head = 0; head < 2; ++head) {
          std::vector<int32_t> expected = largest(scores[head], 0, refreshed - averaged, 20 - averaged);
          for (int64_t i = refreshed - averaged; i < request.n; ++i) expected.push_back(static_cast<int32_t>(i));
          EXPECT_EQ(view->positions(head), expected) << "seed " << seed << ", step " << step;
        }
      }
      request.observe(q);
    }
  }
}

/// By runs, as a verifier asks for it.
json pillar(int64_t tokens) { return {{"name", "pillar_attn"}, {"refresh", "runs"}, {"tokens", tokens}}; }

TEST(PillarAttention, DraftsAttendToTheBestOfTheLastVerificationAndAllSinceIt) {
  constexpr int64_t prompt = 80, verified = 6, accepted = 2, budget = 20;
  Request request(pillar(budget), prompt, 1);
  EXPECT_EQ(request.select(random_floats(Request::kQuery, "q", 2)), nullptr) << "before any verification";

  for (int64_t i = 0; i < verified; ++i) request.append(static_cast<uint64_t>(10 + i));
  const auto run = random_floats(verified * Request::kQuery, "run", 3);
  request.observe(run);
  std::vector<std::vector<double>> mean(2, std::vector<double>(prompt));
  for (int64_t t = 0; t < verified; ++t) {
    const std::vector<float> q(run.begin() + t * Request::kQuery, run.begin() + (t + 1) * Request::kQuery);
    for (int64_t head = 0; head < 4; ++head) {
      const std::vector<double> p = request.attention(q, head, prompt + t + 1);
      for (int64_t i = 0; i < prompt; ++i) mean[head / 2][i] += p[i];
    }
  }

  // t0 and two drafts stay, the others are taken back; then three drafts follow, all on one set.
  request.n = prompt + accepted + 1;
  request.keys.resize(static_cast<size_t>(request.n * Request::kRow));
  request.cache.truncate(request.n);
  for (int64_t step = 0; step < 3; ++step) {
    request.append(static_cast<uint64_t>(30 + step));
    const IndexedSegment* view = request.select(random_floats(Request::kQuery, "q", static_cast<uint64_t>(40 + step)));
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      std::vector<int32_t> expected = largest(mean[head / 2], 0, prompt, budget - (accepted + 1));
      for (int64_t i = prompt; i < request.n; ++i) expected.push_back(static_cast<int32_t>(i));
      EXPECT_EQ(list_of(view->selected(head)), expected) << "step " << step << ", query head " << head;
    }
    request.observe(random_floats(Request::kQuery, "q", 50));  // a draft's attention changes nothing
  }
}

TEST(PillarAttention, AFloorUnderTheBudgetHolds) {
  json spec = {{"name", "pillar_attn"}, {"refresh", "runs"}, {"keep", 0.05}, {"min_tokens", 30}};
  Request request(spec, 100, 5);
  request.observe(random_floats(4 * Request::kQuery, "run", 6));  // the prompt's last four
  request.append(7);
  const IndexedSegment* view = request.select(random_floats(Request::kQuery, "q", 8));
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->entries(0), 30 + 1);  // and the new one

  spec["min_tokens"] = 1000;
  Request all(spec, 100, 5);
  all.observe(random_floats(4 * Request::kQuery, "run", 6));
  all.append(7);
  const IndexedSegment* whole = all.select(random_floats(Request::kQuery, "q", 8));
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->entries(1), 101);
}

}  // namespace
}  // namespace kvarena
