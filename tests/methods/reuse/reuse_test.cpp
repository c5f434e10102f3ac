// Requirements on all methods that reuse entries, and how far their caches are from a full prefill's.

#include <atomic>
#include <future>
#include <thread>

#include "harness/engine/reuse/deviation.h"
#include "harness/engine/reuse/tiered_chunk_store.h"
#include "harness/engine/session/compressed_cache.h"
#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::entries_of;
using testing::expect_full;
using testing::expect_same_bits;
using testing::FullPrompt;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

/// The tier of chunks decides when their entries arrive, not their bits.
TEST(Reuse, ChunksOnATierGiveTheSameCache) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(300);
  std::vector<storage::TierSettings> behind(1);  // host memory
  behind[0].link.name = "test";
  behind[0].link.bytes_per_s = 1e8;
  const auto machine = std::make_shared<const storage::Hierarchy>(behind);
  for (const json& spec : {json{{"name", "full_reuse"}}, json{{"name", "epic"}, {"tokens", 8}},
                           json{{"name", "cacheblend"}}, json{{"name", "speccache"}}}) {
    SCOPED_TRACE(spec.dump());
    json chunked = spec;
    chunked["chunk"] = 64;
    const auto method = make_method(chunked, "test");
    ReuseMemory memory{.chunks = std::make_shared<TieredChunkStore>(machine, Tier::host)};
    prime(model, tokens, {}, *method->reuser(), memory);
    const ReusedPrompt behind_link = reuse_prompt(model, tokens, {}, *method->reuser(), memory);
    const ReusedPrompt at_hand = run(model, tokens, {}, chunked);
    EXPECT_EQ(behind_link.logits, at_hand.logits);
    expect_same_bits(behind_link.cache, at_hand.cache);
  }
}

/// Counts loads, which wait for `open`.
class WatchedStore final : public ChunkStore {
 public:
  explicit WatchedStore(std::shared_future<void> open) : open_(std::move(open)) {}
  [[nodiscard]] std::shared_ptr<const void> hold(const std::string& key) override { return chunks_.hold(key); }
  [[nodiscard]] ChunkCache find(const std::string& key) override {
    ++loads;
    if (open_.wait_for(std::chrono::seconds(60)) == std::future_status::timeout) ADD_FAILURE() << "nobody opened it";
    return chunks_.find(key);
  }
  void put(const std::string& key, ChunkCache chunk) override { chunks_.put(key, std::move(chunk)); }

  std::atomic<int64_t> loads = 0;

 private:
  MemoryChunkStore chunks_;
  std::shared_future<void> open_;
};

TEST(Reuse, AChunkIsLookedForWithoutLoadingItAndLoadedOnceARequest) {
  Transformer model = tiny_model();
  std::promise<void> open;
  open.set_value();
  const auto store = std::make_shared<WatchedStore>(open.get_future().share());
  const auto method = make_method({{"name", "full_reuse"}, {"chunk", 64}}, "test");
  Prefill prompt = unread_prompt(model, tiny_prompt(300));
  prompt.memory = std::make_shared<ReuseMemory>(ReuseMemory{.chunks = store});
  for (int i = 0; i < 2; ++i) prime(model, prompt.tokens, {}, *method->reuser(), *prompt.memory);
  EXPECT_EQ(store->loads, 0);
  Activity activity;
  for (int64_t request = 1; request <= 3; ++request) {
    (void)state_after_prompt(model, prompt, *method, activity);
    EXPECT_EQ(store->loads, 5 * request) << "299 tokens in chunks of 64";
  }
}

/// Opens the store when it has chosen.
class Opener final : public Reuser {
 public:
  explicit Opener(std::promise<void>& open) : open_(&open) {}
  void parameters(ParameterVisitor&) override {}
  [[nodiscard]] std::optional<SpeculativeModel> speculative() const override { return SpeculativeModel{}; }
  [[nodiscard]] std::vector<int32_t> select(const ReusePrompt& prompt) const override {
    EXPECT_EQ(prompt.speculation->tokens, 600);
    open_->set_value();
    return {3, 500};
  }

 private:
  std::promise<void>* open_;
};

TEST(Reuse, ScoringAndChoosingRunBesideLoading) {
  Transformer model = tiny_model();
  std::promise<void> open;
  ReuseMemory memory{.chunks = std::make_shared<WatchedStore>(open.get_future().share())};
  const Opener reuser(open);
  const std::vector<int32_t> tokens = tiny_prompt(600);
  prime(model, tokens, {}, reuser, memory);
  EXPECT_EQ(reuse_prompt(model, tokens, {}, reuser, memory).record.recomputed, (std::vector<int32_t>{3, 500}));
}

TEST(Reuse, APromptThatIsCutIntoPassesHasTheSameBits) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(300);
  const PromptLayout layout{.prefix = 30, .question = 280};
  for (const json& spec :
       {json{{"name", "full_recompute"}}, json{{"name", "prefix_cache"}, {"chunk", 64}},
        json{{"name", "epic"}, {"tokens", 8}, {"chunk", 64}},
        json{{"name", "speccache"}, {"recompute", 0.4}, {"chunk", 64}}, json{{"name", "cacheblend"}, {"chunk", 64}}}) {
    SCOPED_TRACE(spec.dump());
    const auto method = make_method(spec, "test");
    ReuseMemory memory;
    prime(model, tokens, layout, *method->reuser(), memory);
    const ReusedPrompt whole = reuse_prompt(model, tokens, layout, *method->reuser(), memory);
    ReuseRun run(model, tokens, layout, *method->reuser(), memory);
    run.set_chunk(7);
    std::future<void> beginning =
        std::async(std::launch::async, [&] { run.begin(ReuseRun::Beginning::beside_passes); });
    int64_t passes = 0;
    const auto pass = [&] {
      const SequencePass next = run.next_pass();
      run.consume(model.forward({&next, 1}));
      (void)FullPrompt(model, tiny_prompt(20, static_cast<uint64_t>(passes++)));  // other passes come between
    };
    while (run.reads_itself()) pass();
    EXPECT_EQ(passes, spec["name"].get<std::string>() == "speccache" ? (300 + 6) / 7 : 0);
    beginning.get();
    run.arrange();
    passes = 0;
    const int64_t rows = run.remaining();
    EXPECT_EQ(run.narrows(), spec["name"].get<std::string>() == "cacheblend");
    if (run.narrows()) run.compute();
    while (run.remaining() > 0) pass();
    EXPECT_EQ(passes, run.narrows() ? 0 : (rows + 6) / 7);
    const ReusedPrompt cut = run.finish();
    EXPECT_EQ(cut.logits, whole.logits);
    expect_same_bits(cut.cache, whole.cache);
    EXPECT_EQ(cut.record.recomputed, whole.record.recomputed);
    EXPECT_EQ(cut.record.reused, whole.record.reused);
    EXPECT_EQ(cut.record.recompute_share, whole.record.recompute_share);
  }
}

TEST(Reuse, PromptsShareTheirPassesWithEachOtherAndWithThoseOfOthers) {
  Transformer model = tiny_model();
  const std::vector<json> specs = {json{{"name", "epic"}, {"tokens", 8}, {"chunk", 64}},
                                   json{{"name", "speccache"}, {"recompute", 0.4}, {"chunk", 64}},
                                   json{{"name", "prefix_cache"}, {"chunk", 64}}};
  std::vector<std::unique_ptr<Method>> methods;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<ReuseMemory> memories(specs.size());
  std::vector<std::unique_ptr<ReuseRun>> runs;
  for (size_t i = 0; i < specs.size(); ++i) {
    methods.push_back(make_method(specs[i], "test"));
    prompts.push_back(tiny_prompt(280 + 17 * static_cast<int64_t>(i), i));
  }
  const PromptLayout layout{.prefix = 30, .question = 270};
  for (size_t i = 0; i < specs.size(); ++i) {
    prime(model, prompts[i], layout, *methods[i]->reuser(), memories[i]);
    runs.push_back(std::make_unique<ReuseRun>(model, prompts[i], layout, *methods[i]->reuser(), memories[i]));
    runs.back()->begin(ReuseRun::Beginning::alone);
    runs.back()->arrange();
    runs.back()->set_chunk(5 + 3 * static_cast<int64_t>(i));
  }
  PromptRun read(model, tiny_prompt(400, 9), {});
  read.set_chunk(6);
  for (bool left = true; left;) {
    std::vector<PassMember*> members;
    if (read.remaining() > 0) members.push_back(&read);
    for (const auto& run : runs) {
      if (run->remaining() > 0) members.push_back(run.get());
    }
    left = !members.empty();
    run_pass(model, members);
  }
  EXPECT_EQ(read.finish().logits, FullPrompt(model, tiny_prompt(400, 9)).logits);
  for (size_t i = 0; i < specs.size(); ++i) {
    SCOPED_TRACE(specs[i].dump());
    const ReusedPrompt shared = runs[i]->finish();
    const ReusedPrompt alone = reuse_prompt(model, prompts[i], layout, *methods[i]->reuser(), memories[i]);
    EXPECT_EQ(shared.logits, alone.logits);
    expect_same_bits(shared.cache, alone.cache);
    EXPECT_EQ(shared.record.recomputed, alone.record.recomputed);
  }
}

TEST(Reuse, ARunThatIsToldToStopEndsBeforeItHasLoadedAll) {
  Transformer model = tiny_model();
  std::promise<void> open;
  const auto store = std::make_shared<WatchedStore>(open.get_future().share());
  ReuseMemory memory{.chunks = store};
  const auto method = make_method({{"name", "full_reuse"}, {"chunk", 64}}, "test");
  const std::vector<int32_t> tokens = tiny_prompt(300);
  prime(model, tokens, {}, *method->reuser(), memory);
  ReuseRun run(model, tokens, {}, *method->reuser(), memory);
  std::future<void> beginning = std::async(std::launch::async, [&] { run.begin(ReuseRun::Beginning::beside_passes); });
  while (store->loads == 0) std::this_thread::yield();
  run.stop();
  open.set_value();
  beginning.get();
  EXPECT_EQ(store->loads, 1);
}

TEST(Reuse, ComputingEverythingIsFullRecomputeBitForBit) {
  Transformer model = tiny_model();
  for (const int64_t n : {3, 100, 700}) {
    const std::vector<int32_t> tokens = tiny_prompt(n);
    for (const PromptLayout& layout : {PromptLayout{}, PromptLayout{.prefix = n / 9, .question = n - n / 8}}) {
      expect_full(model, tokens, layout, {{"name", "cacheblend"}, {"recompute", 1.0}, {"chunk", 64}});
      expect_full(model, tokens, layout, {{"name", "speccache"}, {"recompute", 1.0}, {"chunk", 64}});
      expect_full(model, tokens, layout, {{"name", "epic"}, {"tokens", 64}, {"chunk", 64}});
    }
  }
}

TEST(Reuse, ComputingNothingIsFullReuse) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(260);
  const PromptLayout layout{.question = 250};
  const ReusedPrompt full = run(model, tokens, layout, {{"name", "full_reuse"}, {"chunk", 64}});
  for (const json& spec : {json{{"name", "epic"}, {"tokens", 0}, {"chunk", 64}},
                           json{{"name", "speccache"}, {"recompute", 0.0}, {"chunk", 64}}}) {
    const ReusedPrompt same = run(model, tokens, layout, spec);
    EXPECT_EQ(same.logits, full.logits);
    expect_same_bits(same.cache, full.cache);
  }
  EXPECT_NE(full.logits, FullPrompt(model, tokens).logits) << "chunks computed alone have not seen each other";
}

TEST(Reuse, ChunksMayRepeatBeShortAndStandInAnyOrder) {
  Transformer model = tiny_model();
  std::vector<int32_t> twice = tiny_prompt(64);
  twice.insert(twice.end(), twice.begin(), twice.begin() + 64);
  for (const int32_t token : {1, 2, 3, 4, 5}) twice.push_back(token);  // the last chunk has 3 tokens
  const PromptLayout layout{.question = 131};
  for (const char* name : {"full_reuse", "epic", "mepic", "kvcomm", "cacheblend", "speccache", "prefix_cache"}) {
    const ReusedPrompt reused = run(model, twice, layout, {{"name", name}, {"chunk", 64}});
    EXPECT_EQ(reused.cache.length, 133) << name;
  }
  // Another order changes full reuse through positions alone: the moved chunk's values keep their bits.
  std::vector<int32_t> ab = tiny_prompt(32, 1);
  const std::vector<int32_t> b = tiny_prompt(32, 2);
  std::vector<int32_t> ba = b;
  ba.insert(ba.end(), ab.begin(), ab.end());
  ab.insert(ab.end(), b.begin(), b.end());
  ab.push_back(9);
  ba.push_back(9);
  const json spec = {{"name", "full_reuse"}, {"chunk", 32}};
  const std::vector<float> first = entries_of(run(model, ab, {}, spec).cache.layers[2], 0);
  const std::vector<float> second = entries_of(run(model, ba, {}, spec).cache.layers[2], 0);
  const int64_t chunk = 32 * model.layer_shape(0).head_dim;
  const auto values = static_cast<int64_t>(first.size()) / 2;
  EXPECT_TRUE(std::equal(&first[values], &first[values + chunk], &second[values + chunk]));
  EXPECT_TRUE(std::equal(&first[values + chunk], &first[values + 2 * chunk], &second[values]));
}

TEST(Deviation, IsZeroForTheSameCacheAndGrowsWithDepthUnderReuse) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(200);
  const FullPrompt full(model, tokens);
  const std::vector<double> none = layer_deviations(full.cache, full.cache, 200);
  for (const double distance : none) EXPECT_NEAR(distance, 0, 1e-12);
  const ReusedPrompt reused = run(model, tokens, {}, {{"name", "full_reuse"}, {"chunk", 64}});
  const std::vector<double> some = layer_deviations(full.cache, reused.cache, 200);
  EXPECT_LT(some[0], 1e-4) << "the first layer's entries depend on tokens and positions alone";
  EXPECT_GT(some[1], 1e-3);
  EXPECT_GT(some[2], some[0]);
}

TEST(Deviation, ByHand) {
  const LayerShape shape{.q_heads = 1, .kv_heads = 1, .head_dim = 16, .dtype = kernels::DType::f32};
  std::vector<float> a(16, 0.0F);
  std::vector<float> b(16, 0.0F);
  a[0] = 2;
  b[1] = 3;  // at a right angle: distance 1
  KvCache x(1, shape);
  KvCache y(1, shape);
  x.layers[0].append(a.data(), a.data(), 1, 16, 0);
  y.layers[0].append(b.data(), a.data(), 1, 16, 0);
  EXPECT_DOUBLE_EQ(layer_deviations(x, y, 1)[0], 0.5) << "keys 1, values 0";
}

}  // namespace
}  // namespace kvarena
