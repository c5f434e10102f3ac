// ShadowKV: what its authors' code selects and restores, what the cache really holds, and whole passes over it.

#include "harness/cache/attend_plan.h"
#include "harness/core/error.h"
#include "harness/storage/low_rank_segment.h"
#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using storage::KeyRotation;
using storage::LowRankSegment;
using testing::random_floats;
using Request = testing::RetrievalRequest;
using Lists = std::vector<std::vector<int32_t>>;

storage::HierarchyPtr machine(storage::LinkFault fault = {}) {
  return std::make_shared<const storage::Hierarchy>(std::vector<storage::TierSettings>{
      {.tier = Tier::host, .link = storage::link_named("real", "test"), .fault = std::move(fault)}});
}

ModelFacts rotating(double rate, storage::HierarchyPtr tiers = machine()) {
  ModelFacts facts{.rotation = {.inverse = std::vector<double>(8, rate)}};
  facts.tiers = std::move(tiers);
  return facts;
}

const LowRankSegment& prompt_of(const Request& request) {
  return dynamic_cast<const LowRankSegment&>(*request.cache.layers[0].segments().front());
}

/// Everything of a layer attended by the queries: [q_len, q_heads, head_dim].
std::vector<float> attended(const Request& request, const std::vector<float>& q) {
  const LayerQueries queries = request.queries(q);
  std::vector<float> out(q.size());
  std::vector<float> max(static_cast<size_t>(queries.q_len * 4));
  std::vector<float> sum(max.size());
  kernels::AttentionState state{.out = out.data(), .max = max.data(), .sum = sum.data()};
  kernels::init_attention(state, queries.q_len, 4, 16);
  attend(request.cache.layers[0].plan(queries), state);
  kernels::finish_attention(state, queries.q_len, 4, 16, nullptr);
  return out;
}

TEST(ShadowKv, SelectsAndRestoresWhatItsAuthorsDo) {
  const ModelFacts facts = rotating(0);
  const json golden = testing::golden("retrieval_methods/shadowkv.json");
  for (const json& one : golden.at("cases")) {
    const auto seed = one.at("seed").get<uint64_t>();
    Request request(one.at("method"), one.at("n"), seed, {}, &facts);
    request.append(seed);
    (void)request.select(random_floats(Request::kQuery, "q", seed));
    ASSERT_NE(request.cache.layers[0].view, nullptr);
    const LowRankSegment& prompt = prompt_of(request);
    for (int64_t head = 0; head < 2; ++head) {
      const auto selected = one.at("selected").get<Lists>()[head], exact = one.at("exact").get<Lists>()[head];
      std::vector<int32_t> expected = exact;
      expected.insert(expected.end(), selected.begin(), selected.end());
      expected.push_back(one.at("n"));  // generated entries are attended
      std::ranges::sort(expected);
      EXPECT_EQ(request.cache.layers[0].view->positions(head), expected) << one.at("method") << ", head " << head;
      std::vector<float> keys(static_cast<size_t>(prompt.entries(head) * 16));
      prompt.read(head, keys.data(), nullptr);
      for (int64_t c = 0; c < 16; ++c) {
        EXPECT_NEAR(keys[selected[0] * 16 + c], one.at("first_keys")[head][c].get<float>(), 2e-5);
        for (const int32_t i : exact) {  // the newest chunks among them, behind what is restored
          if (i >= prompt.entries(head)) continue;
          EXPECT_EQ(keys[i * 16 + c], request.keys[i * Request::kRow + head * 16 + c]) << "exact entry " << i;
        }
      }
    }
  }
}

TEST(ShadowKv, HoldsFactorsOnTheDeviceAndValuesOnTheHost) {
  const ModelFacts facts = rotating(0.3);
  Request request({{"name", "shadowkv"}, {"tokens", 40}, {"rank", 10}, {"outliers", 2}}, 203, 1, {}, &facts);
  // 203 / 8 - 4 = 21 chunks: 168 entries as factors, 35 local ones in three cells.
  const int64_t factors = (168 * 10 + 2 * 10 * 16) * 4;
  const int64_t exact = 2 * 16 * (2 * 16 * 4 + 4);
  const int64_t landmarks = 2 * (32 * 16 * 4);  // 19 landmarks in two cells; the chunks' numbers beside them
  const int64_t local = 48 * Request::kShape.entry_bytes();
  EXPECT_EQ(request.cache.layers[0].segments().front()->bytes(), factors + exact);
  EXPECT_GE(request.cache.bytes(), factors + exact + landmarks + local);
  EXPECT_EQ(request.cache.ledger->current(Tier::host), 2 * 168 * 16 * 4);
  // A copy holds the same and says the same.
  const KvCache copy = request.cache.clone();
  EXPECT_EQ(copy.ledger->current(Tier::host), 2 * 168 * 16 * 4);
  std::vector<float> keys(168 * 16);
  std::vector<float> copied(168 * 16);
  prompt_of(request).read(1, keys.data(), nullptr);
  copy.layers[0].segments().front()->read(1, copied.data(), nullptr);
  EXPECT_EQ(keys, copied);
}

/// Outliers are the chunks that some key of theirs agrees least with, wherever they lie: here the first.
TEST(ShadowKv, TheChunkThatItsMeanSpeaksForLeastIsKeptExactly) {
  std::vector<float> keys(203 * Request::kRow, 1.0F);
  for (int64_t i = 1; i < 8; i += 2) std::fill_n(&keys[i * Request::kRow], Request::kRow, -0.5F);
  const ModelFacts facts = rotating(0);
  const Request request({{"name", "shadowkv"}, {"tokens", 40}, {"rank", 4}, {"outliers", 1}}, keys, {}, &facts);
  EXPECT_EQ(prompt_of(request).exact().positions(1), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ShadowKv, FullRankAndAllChunksIsFullAttention) {
  for (const double rate : {0.0, 0.3}) {
    const ModelFacts facts = rotating(rate);
    Request full({{"name", "full"}}, 203, 2);
    Request request({{"name", "shadowkv"}, {"tokens", 176}, {"rank", 160}, {"outliers", 1}}, 203, 2, {}, &facts);
    full.append(9);
    request.append(9);
    const auto q = random_floats(Request::kQuery, "q", 2);
    const std::vector<float> expected = attended(full, q);
    const std::vector<float> all = attended(request, q);  // no view: a pass over everything
    (void)request.select(q);
    ASSERT_NE(request.cache.layers[0].view, nullptr);
    const std::vector<float> chosen = attended(request, q);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(all[i], expected[i], 2e-5);
      EXPECT_NEAR(chosen[i], expected[i], 2e-5);
    }
  }
}

TEST(ShadowKv, APassOfSeveralQueriesBringsAllValues) {
  const json spec = {{"name", "shadowkv"}, {"tokens", 40}, {"rank", 10}, {"outliers", 2}};
  const ModelFacts facts = rotating(0.3);
  Request request(spec, 203, 1, {}, &facts);
  EXPECT_EQ(request.activity.traffic.offloaded_bytes, 2 * 168 * 16 * 4);
  EXPECT_EQ(facts.tiers->offload(Tier::host).totals().bytes, 2 * 168 * 16 * 4);
  const auto q = random_floats(3 * Request::kQuery, "q");
  const std::vector<float> expected = attended(request, q);  // by the segments themselves
  (void)request.select(q);
  ASSERT_NE(request.cache.layers[0].view, nullptr);
  EXPECT_EQ(request.activity.traffic.loaded_bytes, 2 * 168 * 16 * 4);
  EXPECT_EQ(attended(request, q), expected);
}

TEST(ShadowKv, ValuesComeOverTheLinkAndALostOneEndsTheRequest) {
  const json spec = {{"name", "shadowkv"}, {"tokens", 40}, {"rank", 10}, {"outliers", 2}};
  const ModelFacts facts = rotating(0.3);
  Request request(spec, 203, 1, {}, &facts);
  request.append(1);
  (void)request.select(random_floats(Request::kQuery, "q"));
  const int64_t fetched = 2 * 40 * 16 * 4;  // values of five chunks a head in 32 bits
  EXPECT_EQ(request.activity.traffic.loaded_bytes, fetched);
  EXPECT_GT(request.activity.traffic.link_seconds, 0);
  const storage::LinkTotals totals = facts.tiers->load(Tier::host).totals();
  EXPECT_EQ(totals.transfers, 1);
  EXPECT_EQ(totals.bytes, fetched);
  EXPECT_LE(totals.pieces, 10);

  const ModelFacts broken = rotating(0.3, machine([](int64_t) { throw UserError("the host lost a page"); }));
  Request lost(spec, 203, 1, {}, &broken);
  lost.append(1);
  EXPECT_THROW((void)lost.select(random_floats(Request::kQuery, "q")), UserError);
}

TEST(ShadowKv, PromptsWithinTheBudgetOrWithoutChunksAreLeftAlone) {
  const ModelFacts facts = rotating(0);
  for (const auto& [tokens, n] : {std::pair{64, 64}, {8, 37}}) {
    Request request({{"name", "shadowkv"}, {"tokens", tokens}}, n, 1, {}, &facts);
    request.append(1);
    EXPECT_EQ(request.select(random_floats(Request::kQuery, "q")), nullptr);
    EXPECT_EQ(request.cache.layers[0].view, nullptr);
    EXPECT_EQ(request.cache.layers[0].segments().size(), 1U);
  }
}

TEST(KeyRotation, UndoingATurnGivesTheKeyBack) {
  const KeyRotation rotation{.inverse = {1.0, 0.1, 0.01, 0.001}, .magnitude = 1.3};
  const std::vector<float> key = random_floats(8, "key");
  for (const int32_t position : {0, 1, 77, 5000}) {
    std::vector<float> turned = key;
    rotation.turn(turned.data(), 8, {position});
    rotation.undo(turned.data(), position);
    for (size_t c = 0; c < 8; ++c) EXPECT_NEAR(turned[c], key[c], 1e-6);
  }
}

}  // namespace
}  // namespace kvarena
