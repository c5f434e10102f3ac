// Heavy-hitter retrieval against its definition in double, which is its restatement (arXiv:2306.14048, section 4).

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::largest;
using testing::random_floats;
using Request = testing::RetrievalRequest;

TEST(HeavyHitterRetrieval, RanksByThePastAndKeepsCountingWhatItDidNotAttend) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    LayerObservations seen;
    seen.entries = 120;
    for (const float x : random_floats(4 * 120, "received", seed)) seen.prompt_attention.push_back(2 + x);
    const json spec = {{"name", "heavy_hitter_retr"}, {"tokens", 30}};
    Request request(spec, 120, seed, seen);
    std::vector<std::vector<double>> sums(2, std::vector<double>(120));
    for (int64_t head = 0; head < 4; ++head) {
      for (int64_t i = 0; i < 120; ++i) sums[head / 2][i] += seen.prompt_attention[head * 120 + i];
    }
    for (uint64_t step = 0; step < 40; ++step) {
      request.append(seed * 100 + step);
      auto q = random_floats(Request::kQuery, "q", seed * 100 + step);
      for (float& x : q) x *= 8;  // sharp enough to move the ranking
      const IndexedSegment* view = request.select(q);
      ASSERT_NE(view, nullptr);
      for (int64_t head = 0; head < 2; ++head) {
        sums[head].resize(static_cast<size_t>(request.n), 0);
        std::vector<int32_t> expected = largest(sums[head], 0, request.n - 15, 15);
        for (int64_t i = request.n - 15; i < request.n; ++i) expected.push_back(static_cast<int32_t>(i));
        ASSERT_EQ(view->positions(head), expected) << "seed " << seed << ", step " << step;
      }
      for (int64_t head = 0; head < 4; ++head) {
        const std::vector<double> p = request.attention(q, head, request.n);
        for (size_t i = 0; i < p.size(); ++i) sums[head / 2][i] += p[i];
      }
      request.observe(q);
    }
  }
}

}  // namespace
}  // namespace kvarena
