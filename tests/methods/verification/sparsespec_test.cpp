// SparseSpec: drafts attend to what the last verification attended to, and what it verified stays true to full KV.

#include <numeric>

#include "harness/engine/session/session.h"
#include "tests/methods/retrieval/retrieval_support.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::largest;
using testing::list_of;
using testing::random_floats;
using testing::tiny_prompt;
using Request = testing::RetrievalRequest;

json pillar(int64_t tokens) { return {{"name", "pillar_attn"}, {"refresh", "runs"}, {"tokens", tokens}}; }

TEST(SparseSpec, DraftsAttendToTheBestOfTheLastVerificationAndAllSinceIt) {
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

TEST(SparseSpec, AFloorUnderTheBudgetHolds) {
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

struct Decoded {
  std::vector<int32_t> tokens;
  std::vector<VerifyRound> rounds;
  Activity activity;
  int64_t peak_bytes = 0;
};

Decoded decode(Transformer& model, const Prefill& prompt, const json& spec, double temperature) {
  const auto method = make_method(spec, "test");
  SessionOptions options{.stop = {.max_new_tokens = 120}, .sampling = {.temperature = temperature, .seed = 3}};
  const auto session = start_session(model, prompt, *method, std::move(options));
  Session* const sessions[] = {session.get()};
  run_together(model, sessions);
  return {session->tokens, session->rounds, session->activity, session->peak_bytes};
}

TEST(SparseSpec, EmitsWhatFullKvWouldFromOneResidentCache) {
  Transformer model = testing::tiny_model();
  for (const int64_t n : {2, 400}) {
    const Prefill prompt = prefill(model, tiny_prompt(n), {});
    for (const double temperature : {0.0, 0.8}) {
      const Decoded full = decode(model, prompt, {{"name", "full"}}, temperature);
      for (const int64_t length : {1, 8}) {
        const json spec = {{"name", "sparsespec"}, {"draft_length", length}, {"keep", 0.05}, {"min_tokens", 16}};
        const Decoded found = decode(model, prompt, spec, temperature);
        EXPECT_EQ(found.tokens, full.tokens) << n << " " << temperature << " " << length;
        if (n < 100) continue;
        EXPECT_GT(found.activity.entries_skipped, 0);
        EXPECT_LT(found.peak_bytes, full.peak_bytes * 3 / 2);  // no second copy of the cache
      }
    }
  }
}

TEST(SparseSpec, AWholeBudgetDraftsPerfectly) {
  Transformer model = testing::tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(200), {});
  const Decoded found = decode(model, prompt, {{"name", "sparsespec"}, {"min_tokens", 100000}}, 0);
  for (const VerifyRound& round : found.rounds) EXPECT_EQ(round.accepted, round.drafted);
}

}  // namespace
}  // namespace kvarena
