// Continuous batching with the real engine: whatever shares the passes, and whenever it comes, an answer has the bits
// that it has alone; caches stay within what was reserved; trouble of one request stays its own.

#include "harness/engine/serving/serving_engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "harness/engine/model_facts.h"
#include "harness/engine/session/request_bytes.h"
#include "harness/method/registry.h"
#include "harness/method/reuser.h"
#include "tests/support/imported_weights.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena {
namespace {

using nlohmann::json;
using serving::BatchSettings;
using serving::Load;
using serving::Outcome;
using serving::ServingRun;
using testing::tiny_model;
using testing::tiny_prompt;

/// A checkpoint for verifiers that draft with one.
class DraftFolder {
 public:
  DraftFolder() : path_(std::filesystem::temp_directory_path() / fmt::format("kvarena-serving-{}", ::getpid())) {
    testing::write_tiny_model(path_.string(), 2);
  }
  ~DraftFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  DraftFolder(const DraftFolder&) = delete;
  DraftFolder& operator=(const DraftFolder&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

class Serving : public ::testing::Test {
 protected:
  Serving() : model_(tiny_model()), facts_(model_facts(model_)) {}

  const Method* method(const json& spec) { return methods_.emplace_back(make_method(spec, "test")).get(); }

  /// One of each kind of session: full, dropping, packing, selecting, reusing, and drafts from a cache, layers, a rule,
  /// a model.
  std::vector<const Method*> every_kind() {
    return {method({{"name", "full"}}),
            method({{"name", "snapkv"}, {"keep", 0.3}}),
            method({{"name", "streaming_llm"}, {"tokens", 64}}),
            method({{"name", "h2o"}, {"keep", 0.5}}),
            method({{"name", "kivi"}, {"bits", 2}}),
            method({{"name", "quest"}, {"keep", 0.25}}),
            method({{"name", "kvzip"}, {"keep", 0.5}}),
            method({{"name", "vericache"}, {"draft_length", 5}, {"drafter", {{"name", "snapkv"}, {"keep", 0.25}}}}),
            method({{"name", "vericache"}, {"draft_length", 3}, {"drafter", {{"name", "kivi"}}}}),
            method({{"name", "epic"}, {"chunk", 64}, {"tokens", 8}}),
            method({{"name", "cacheblend"}, {"chunk", 64}}),
            method({{"name", "speccache"}, {"recompute", 0.4}, {"chunk", 64}}),
            method({{"name", "speccache"}, {"model", drafts_.path()}, {"chunk", 64}}),
            method({{"name", "prefix_cache"}, {"chunk", 64}}),
            method({{"name", "early_exit"}}),
            method({{"name", "ngram"}}),
            method({{"name", "spec_decode"}, {"draft_model", drafts_.path()}})};
  }

  const Method* scheduled_verifier(const char* schedule) {
    return method({{"name", "vericache"},
                   {"draft_length", 4},
                   {"schedule", schedule},
                   {"drafter", {{"name", "snapkv"}, {"keep", 0.1}}}});
  }
  /// Facts of a machine whose host memory lies behind a link of 500 MB/s.
  [[nodiscard]] std::shared_ptr<const ModelFacts> behind_slow_link() const {
    return model_facts(model_, {},
                       std::make_shared<storage::Hierarchy>(std::vector<storage::TierSettings>{
                           {.tier = Tier::host, .link = {.name = "slow", .bytes_per_s = 500e6}}}));
  }

  std::vector<int32_t> alone(const ServedRequest& request) {
    const Prefill prompt = prefill(model_, request.prompt, request.method->needs(), kPrefillChunk, facts_);
    const auto session = start_session(model_, prompt, *request.method, request.options);
    Session* const one[] = {session.get()};
    run_together(model_, one);
    return session->tokens;
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  DraftFolder drafts_;
  std::vector<std::unique_ptr<Method>> methods_;
};

TEST_F(Serving, OrderAndTimesOfArrivalsChangeNoAnswerOfAnyKindOfSession) {
  const std::vector<const Method*> kinds = every_kind();
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomStream random(seed, "serving engine");
    std::vector<ServedRequest> requests;
    for (size_t i = 0; i < 18; ++i) {
      const auto draw = static_cast<uint64_t>(100 * i);
      const Method* kind =
          i < kinds.size() ? kinds[(i + seed) % kinds.size()] : kinds[random.below(kinds.size(), draw)];
      requests.push_back(
          {.prompt = tiny_prompt(static_cast<int64_t>(1 + random.below(420, draw + 1)), draw + seed),
           .method = kind,
           .options = {.stop = {.max_new_tokens = static_cast<int64_t>(1 + random.below(30, draw + 2))}}});
    }
    std::vector<double> times;
    for (size_t i = 0; i < requests.size(); ++i) {
      times.push_back(i < 9 ? 0 : times.back() + 0.02 * random.uniform(i));  // the first nine do not fit together
    }
    ServingEngine engine(model_, requests, facts_);
    // Room for two or three requests of the larger kinds at a time.
    const int64_t budget = 3 * 4 * engine.full_bytes(450) / 2;
    const BatchSettings settings{
        .cache_bytes = budget, .pass_tokens = static_cast<int64_t>(20 + random.below(300, 7)), .max_running = 12};
    const ServingRun run = serve(Load::at_times(times), engine, settings);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(run.requests[i].outcome, Outcome::answered) << i << ": " << run.requests[i].reason;
      EXPECT_EQ(engine.answer(static_cast<int64_t>(i))->tokens, alone(requests[i])) << "request " << i;
      EXPECT_EQ(run.requests[i].token_s.size(), engine.answer(static_cast<int64_t>(i))->tokens.size());
    }
    EXPECT_LE(run.peak_reserved_bytes, budget);
    EXPECT_LE(run.peak_held_bytes, budget);
    EXPECT_EQ(run.overrun_bytes, 0);
    EXPECT_GT(run.peak_waiting, 0);
  }
}

TEST_F(Serving, APromptOutOfChunksIsReadBesideTheStepsOfOthers) {
  const Method* full = method({{"name", "full"}});
  const Method* reuses = method({{"name", "epic"}, {"chunk", 64}, {"tokens", 64}});  // all but the first chunk
  const auto memory = std::make_shared<ReuseMemory>();
  const auto reused = [&](int64_t tokens) {
    prime(model_, tiny_prompt(tokens), {}, *reuses->reuser(), *memory);
    return ServedRequest{
        .prompt = tiny_prompt(tokens), .method = reuses, .options = {.stop = {.max_new_tokens = 3}}, .memory = memory};
  };
  const std::vector<ServedRequest> requests = {
      {.prompt = tiny_prompt(10), .method = full, .options = {.stop = {.max_new_tokens = 400}}},
      reused(400),
      reused(500)};
  ServingEngine engine(model_, requests, facts_);
  const ServingRun run = serve(Load::at_times({0, 0, 0}), engine, {.pass_tokens = 101, .max_running = 8});
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(run.requests[i].outcome, Outcome::answered) << run.requests[i].reason;
    EXPECT_EQ(engine.answer(static_cast<int64_t>(i))->tokens, alone(requests[i])) << i;
  }
  const auto steps_until = [&](double time) {
    return std::ranges::count_if(run.requests[0].token_s, [&](double token) { return token <= time; });
  };
  // In a pass of 101 tokens a step leaves 100 to the 336 of the second and the 436 of the third; whoever is there first
  // takes them, and the other what is left.
  const auto [first, last] = std::minmax({run.requests[1].token_s.front(), run.requests[2].token_s.front()});
  EXPECT_GE(steps_until(first), 4);
  EXPECT_GE(steps_until(last), 8);
  EXPECT_LT(steps_until(last), 400);
}

/// Gives chunks once it is open, and as late as it is told.
class LateStore final : public ChunkStore {
 public:
  explicit LateStore(std::shared_future<void> open, std::chrono::milliseconds late = {}) : open_(open), late_(late) {}
  [[nodiscard]] std::shared_ptr<const void> hold(const std::string& key) override { return chunks_.hold(key); }
  [[nodiscard]] ChunkCache find(const std::string& key) override {
    if (open_.wait_for(std::chrono::seconds(60)) == std::future_status::timeout) ADD_FAILURE() << "nobody opened it";
    std::this_thread::sleep_for(late_);
    return chunks_.find(key);
  }
  void put(const std::string& key, ChunkCache chunk) override { chunks_.put(key, std::move(chunk)); }

 private:
  MemoryChunkStore chunks_;
  std::shared_future<void> open_;
  std::chrono::milliseconds late_;
};

TEST_F(Serving, NobodyWaitsForTheChunksOfAnotherNorForTheirPlaceInPasses) {
  std::promise<void> open;
  const Method* full = method({{"name", "full"}});
  const Method* reuses = method({{"name", "speccache"}, {"model", drafts_.path()}, {"chunk", 64}});
  const auto memory =
      std::make_shared<ReuseMemory>(ReuseMemory{.chunks = std::make_shared<LateStore>(open.get_future().share())});
  prime(model_, tiny_prompt(400), {}, *reuses->reuser(), *memory);
  std::vector<ServedRequest> requests = {
      {.prompt = tiny_prompt(10), .method = full, .options = {.stop = {.max_new_tokens = 40}}},
      {.prompt = tiny_prompt(400), .method = reuses, .options = {.stop = {.max_new_tokens = 3}}, .memory = memory},
      {.prompt = tiny_prompt(300, 3), .method = full, .options = {.stop = {.max_new_tokens = 5}}}};
  requests[0].options.stop.stop_when = [&](std::span<const int32_t> tokens) {
    if (tokens.size() == 30) open.set_value();  // that far it came without the chunks
    return false;
  };
  ServingEngine engine(model_, requests, facts_);
  const ServingRun run = serve(Load::at_times({0, 0, 0}), engine, {.pass_tokens = 101, .max_running = 8});
  for (size_t i = 0; i < requests.size(); ++i)
    ASSERT_EQ(run.requests[i].outcome, Outcome::answered) << run.requests[i].reason;
  const double reused_s = run.requests[1].token_s.front();
  EXPECT_GT(reused_s, run.requests[0].token_s[28]);
  EXPECT_LT(run.requests[2].token_s.back(), reused_s) << "a prompt behind it is read and answered meanwhile";
  requests[0].options.stop.stop_when = {};
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(engine.answer(static_cast<int64_t>(i))->tokens, alone(requests[i])) << i;
}

TEST_F(Serving, TheBeginningOfAPromptOutOfChunksCountsInItsTime) {
  std::promise<void> promise;
  promise.set_value();
  const std::shared_future<void> open = promise.get_future().share();
  constexpr std::chrono::milliseconds late(100);
  for (const json& spec : {json{{"name", "epic"}, {"chunk", 64}, {"tokens", 8}},
                           json{{"name", "speccache"}, {"recompute", 0.4}, {"chunk", 64}}}) {
    const Method* reuses = method(spec);
    const auto memory = std::make_shared<ReuseMemory>(ReuseMemory{.chunks = std::make_shared<LateStore>(open, late)});
    prime(model_, tiny_prompt(150), {}, *reuses->reuser(), *memory);
    const ServedRequest request{
        .prompt = tiny_prompt(150), .method = reuses, .options = {.stop = {.max_new_tokens = 3}}, .memory = memory};
    ServingEngine engine(model_, {request, request}, facts_);
    const ServingRun run = serve(Load::at_times({0, 0.005}), engine, {.pass_tokens = 101, .max_running = 8});
    for (const auto& timeline : run.requests) {
      ASSERT_EQ(timeline.outcome, Outcome::answered) << timeline.reason;
      EXPECT_GE(timeline.token_s.front() - timeline.arrival_s, 0.3) << "three chunks";
    }
    EXPECT_LT(run.requests[1].token_s.front(), 0.6) << "one is loaded beside the other";
    EXPECT_EQ(engine.answer(0)->tokens, engine.answer(1)->tokens);
  }
}

TEST_F(Serving, ACancelledRequestDoesNotWaitForItsChunks) {
  std::promise<void> open;
  open.set_value();
  const Method* reuses = method({{"name", "epic"}, {"chunk", 64}, {"tokens", 8}});
  const auto memory = std::make_shared<ReuseMemory>(
      ReuseMemory{.chunks = std::make_shared<LateStore>(open.get_future().share(), std::chrono::milliseconds(200))});
  prime(model_, tiny_prompt(1000), {}, *reuses->reuser(), *memory);
  ServedRequest request{
      .prompt = tiny_prompt(1000), .method = reuses, .options = {.stop = {.max_new_tokens = 3}}, .memory = memory};
  request.patience_s = 0.01;
  ServingEngine engine(model_, {request}, facts_);
  const auto begin = std::chrono::steady_clock::now();
  const ServingRun run = serve(Load::at_times({0}), engine, {.pass_tokens = 101, .max_running = 8});
  EXPECT_EQ(run.requests[0].outcome, Outcome::cancelled);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 1.6) << "sixteen chunks would take twice that";
}

/// Throws where it chooses.
class Thrower final : public Reuser {
 public:
  void parameters(ParameterVisitor&) override {}
  [[nodiscard]] std::vector<int32_t> select(const ReusePrompt&) const override {
    throw std::runtime_error("broke while choosing");
  }
};

TEST_F(Serving, WhatIsThrownBesidePassesEndsItsRequestAlone) {
  const Method* full = method({{"name", "full"}});
  const ReuseMethod throws(std::make_unique<Thrower>());
  std::vector<ServedRequest> requests = {
      {.prompt = tiny_prompt(50), .method = full, .options = {.stop = {.max_new_tokens = 20}}},
      {.prompt = tiny_prompt(200), .method = &throws, .options = {.stop = {.max_new_tokens = 3}}}};
  ServingEngine engine(model_, requests, facts_);
  const ServingRun run = serve(Load::at_times({0, 0}), engine, {.pass_tokens = 101, .max_running = 8});
  EXPECT_EQ(run.requests[1].outcome, Outcome::failed);
  EXPECT_EQ(run.requests[1].reason, "broke while choosing");
  ASSERT_EQ(run.requests[0].outcome, Outcome::answered) << run.requests[0].reason;
  EXPECT_EQ(engine.answer(0)->tokens, alone(requests[0]));
}

/// Hooks of a request are shielded from the others, and hear all that they hear alone: a head that missed the residual
/// stream, or kept an old one, would draft otherwise.
TEST(ServingHeads, DraftWhatTheyDraftAlone) {
  Transformer model = tiny_model(1, {.weights = DType::f32, .cache = DType::f32});
  const auto facts = model_facts(model);
  const std::string weights = testing::imported(model, "eagle3", KVARENA_SOURCE_DIR "/tests/golden/eagle3_drafter");
  std::vector<std::unique_ptr<Method>> methods;
  methods.push_back(make_method({{"name", "eagle3"}, {"weights", weights}, {"draft_length", 3}, {"top_k", 1}}, "test"));
  methods.push_back(make_method({{"name", "eagle3"}, {"weights", weights}, {"draft_length", 3}}, "test"));
  std::vector<ServedRequest> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back({.prompt = tiny_prompt(static_cast<int64_t>(40 + 9 * i), i),
                        .method = methods[i % methods.size()].get(),
                        .options = {.stop = {.max_new_tokens = 30}}});
  }
  ServingEngine engine(model, requests, facts);
  const ServingRun run = serve(Load::at_times(std::vector<double>(requests.size(), 0)), engine, {.pass_tokens = 70});
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(run.requests[i].outcome, Outcome::answered) << run.requests[i].reason;
    const Prefill prompt = prefill(model, requests[i].prompt, requests[i].method->needs(), kPrefillChunk, facts);
    const auto session = start_session(model, prompt, *requests[i].method, requests[i].options);
    Session* const one[] = {session.get()};
    run_together(model, one);
    const ServedAnswer& answer = *engine.answer(static_cast<int64_t>(i));
    EXPECT_EQ(answer.tokens, session->tokens);
    EXPECT_EQ(answer.activity.tokens_drafted, session->activity.tokens_drafted);
    EXPECT_EQ(answer.activity.tokens_accepted, session->activity.tokens_accepted);
    EXPECT_GT(answer.activity.tokens_drafted, 0);
  }
}

TEST_F(Serving, ScheduledVerifiersAnswerAsFullKvDoesWhileOthersArrive) {
  const auto facts = behind_slow_link();
  for (const char* schedule : {"staggered", "lock_step", "sequential"}) {
    SCOPED_TRACE(schedule);
    const Method* scheduled = scheduled_verifier(schedule);
    std::vector<ServedRequest> requests;
    std::vector<double> times;
    for (uint64_t i = 0; i < 10; ++i) {
      requests.push_back({.prompt = tiny_prompt(static_cast<int64_t>(120 + 29 * i), i),
                          .method = i % 4 == 3 ? method({{"name", "full"}}) : scheduled,
                          .options = {.stop = {.max_new_tokens = i == 4 ? 1 : 25}}});
      times.push_back(0.01 * static_cast<double>(i));
    }
    requests[8].patience_s = 0;  // leaves while it waits, or while it is served
    const int64_t one = full_cache_bytes(model_, 420);
    ServingEngine engine(model_, requests, facts);
    const BatchSettings settings{.cache_bytes = 8 * one, .pass_tokens = 100, .max_running = 6};
    const ServingRun run = serve(Load::at_times(times), engine, settings);
    EXPECT_LE(run.peak_held_bytes, settings.cache_bytes);
    EXPECT_EQ(run.overrun_bytes, 0);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (i == 8 && run.requests[i].outcome == Outcome::cancelled) continue;
      ASSERT_EQ(run.requests[i].outcome, Outcome::answered) << i << ": " << run.requests[i].reason;
      const ServedRequest plain{
          .prompt = requests[i].prompt, .method = method({{"name", "full"}}), .options = requests[i].options};
      EXPECT_EQ(engine.answer(static_cast<int64_t>(i))->tokens, alone(plain)) << "request " << i;
    }
  }
}

/// The largest full cache takes more than a quarter of the memory, in which its request just starts.
TEST_F(Serving, FullCachesThatComeBackTakeWhatOtherCachesLeave) {
  const auto facts = behind_slow_link();
  for (const char* schedule : {"staggered", "lock_step", "sequential"}) {
    SCOPED_TRACE(schedule);
    const Method* scheduled = scheduled_verifier(schedule);
    std::vector<ServedRequest> requests;
    std::vector<std::vector<int32_t>> expected;
    for (uint64_t i = 0; i < 8; ++i) {
      requests.push_back({.prompt = tiny_prompt(static_cast<int64_t>(i == 0 ? 300 : 110 - 5 * i), i),
                          .method = i % 4 == 3 ? method({{"name", "full"}}) : scheduled,
                          .options = {.stop = {.max_new_tokens = 25}}});
      expected.push_back(alone({.prompt = requests.back().prompt,
                                .method = method({{"name", "full"}}),
                                .options = requests.back().options}));
    }
    ServingEngine engine(model_, requests, facts);
    const BatchSettings settings{.cache_bytes = engine.needs(0).bytes, .pass_tokens = 100, .max_running = 6};
    ASSERT_GT(engine.full_bytes(325), settings.cache_bytes / 4);
    MemoryLedger& process = MemoryLedger::process();
    const int64_t before = process.current(Tier::device);
    process.restart_peaks();
    const ServingRun run = serve(Load::at_times(std::vector<double>(requests.size(), 0)), engine, settings);
    EXPECT_LE(process.peak(Tier::device) - before, settings.cache_bytes) << "full caches and all others together";
    EXPECT_LE(run.peak_reserved_bytes, settings.cache_bytes);
    EXPECT_LE(run.peak_held_bytes, settings.cache_bytes);
    EXPECT_GT(run.peak_held_bytes, engine.full_bytes(300));
    EXPECT_GT(run.peak_running, 1);
    EXPECT_EQ(run.overrun_bytes, 0);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(run.requests[i].outcome, Outcome::answered) << i << ": " << run.requests[i].reason;
      EXPECT_EQ(engine.answer(static_cast<int64_t>(i))->tokens, expected[i]) << "request " << i;
    }
  }
}

/// Such a drafter goes on with a copy of its cache in each round.
TEST_F(Serving, ARequestWhoseFullCacheNeverFitsBesideItsDraftsFailsAlone) {
  const Method* scheduled =
      method({{"name", "vericache"}, {"schedule", "staggered"}, {"drafter", {{"name", "h2o"}, {"keep", 0.95}}}});
  std::vector<ServedRequest> requests(
      3, {.prompt = tiny_prompt(300), .method = scheduled, .options = {.stop = {.max_new_tokens = 4}}});
  requests[1].method = method({{"name", "full"}});
  ServingEngine engine(model_, requests, facts_);
  const ServingRun run = serve(Load::at_times({0, 0, 0}), engine, {.cache_bytes = engine.needs(0).bytes});
  for (const size_t i : {0, 2}) {
    EXPECT_EQ(run.requests[i].outcome, Outcome::failed);
    EXPECT_NE(run.requests[i].reason.find("raise cache_mib or draft on less"), std::string::npos);
  }
  EXPECT_EQ(run.requests[1].outcome, Outcome::answered) << run.requests[1].reason;
}

TEST_F(Serving, AFullCacheThatNeverComesBackIsRefused) {
  const Method* scheduled =
      method({{"name", "vericache"}, {"schedule", "staggered"}, {"drafter", {{"name", "snapkv"}, {"keep", 0.1}}}});
  const ServedRequest request{
      .prompt = tiny_prompt(200), .method = scheduled, .options = {.stop = {.max_new_tokens = 8}}};
  ServingEngine engine(model_, {request}, facts_);
  const ServingRun run =
      serve(Load::at_times({0}), engine, {.cache_bytes = full_cache_bytes(model_, 100), .pass_tokens = 100});
  EXPECT_EQ(run.requests[0].outcome, Outcome::refused);
}

TEST_F(Serving, EveryKindStaysWithinWhatItReserves) {
  for (const Method* kind : every_kind()) {
    for (const int64_t tokens : {1, 17, 300}) {
      const ServedRequest request{
          .prompt = tiny_prompt(tokens), .method = kind, .options = {.stop = {.max_new_tokens = 80}}};
      ServingEngine engine(model_, {request}, facts_);
      MemoryLedger& process = MemoryLedger::process();
      const int64_t before = process.current(Tier::device);
      process.restart_peaks();
      const ServingRun run = serve(Load::at_times({0}), engine, {.pass_tokens = 100});
      ASSERT_EQ(run.requests[0].outcome, Outcome::answered) << run.requests[0].reason;
      EXPECT_EQ(run.overrun_bytes, 0) << tokens << " tokens";
      EXPECT_LE(process.peak(Tier::device) - before, engine.needs(0).bytes) << tokens << " tokens";
      EXPECT_LE(engine.answer(0)->peak_bytes, engine.needs(0).bytes) << tokens << " tokens";
    }
  }
}

/// A start holds one full cache, those made beside it, and half a one for a layer's codes or an index.
TEST_F(Serving, ReservesNoSecondFullCacheWhereTheFirstIsShared) {
  const auto caches_to_start = [&](const json& spec) {
    const ServedRequest request{
        .prompt = tiny_prompt(320), .method = method(spec), .options = {.stop = {.max_new_tokens = 16}}};
    const ServingEngine engine(model_, {request}, facts_);
    const int64_t growing = request.method->verifier() == nullptr ? 1 : 2;
    const int64_t held = engine.needs(0).bytes - growing * growth_bytes(model_, 320, 16);
    return static_cast<double>(held) / static_cast<double>(engine.full_bytes(320));
  };
  const json snapkv = {{"name", "snapkv"}, {"keep", 0.3}};
  EXPECT_EQ(caches_to_start({{"name", "full"}}), 1.5);
  EXPECT_EQ(caches_to_start(snapkv), 1.5);
  EXPECT_EQ(caches_to_start({{"name", "specache"}}), 1.5);
  EXPECT_EQ(caches_to_start({{"name", "vericache"}, {"drafter", snapkv}}), 2.5);
  EXPECT_EQ(caches_to_start({{"name", "quantspec"}}), 3.5);  // verifies on a cache of its own
  EXPECT_EQ(caches_to_start({{"name", "cacheblend"}}), 2.5);
  EXPECT_EQ(caches_to_start({{"name", "kvzip"}, {"keep", 0.5}}), 3.5);  // repeats its prompt on a copy
}

TEST_F(Serving, CompressionMakesRoomForMoreRequests) {
  const auto most_at_once = [&](const json& spec) {
    std::vector<ServedRequest> requests(
        16, {.prompt = tiny_prompt(400), .method = method(spec), .options = {.stop = {.max_new_tokens = 40}}});
    ServingEngine engine(model_, requests, facts_);
    return serve(Load::at_times(std::vector<double>(16, 0)), engine, {.cache_bytes = 8 * engine.full_bytes(440)})
        .peak_running;
  };
  EXPECT_GT(most_at_once({{"name", "snapkv"}, {"keep", 0.1}}), most_at_once({{"name", "full"}}));
}

TEST_F(Serving, ARequestThatCannotBeServedIsRefusedWithASentence) {
  const Method* full = method({{"name", "full"}});
  std::vector<ServedRequest> requests = {
      {.prompt = tiny_prompt(20), .method = full, .options = {.stop = {.max_new_tokens = 5}}},
      {.prompt = tiny_prompt(2000), .method = full, .options = {.stop = {.max_new_tokens = 60}}},
      {.prompt = {1, 2, 500}, .method = full},
      {.prompt = {}, .method = full},
      {.prompt = tiny_prompt(900), .method = full, .options = {.stop = {.max_new_tokens = 5}}}};
  ServingEngine engine(model_, requests, facts_);
  const ServingRun run = serve(Load::at_times({0, 0, 0, 0, 0}), engine, {.cache_bytes = engine.full_bytes(900)});
  EXPECT_EQ(run.requests[0].outcome, Outcome::answered);
  for (size_t i = 1; i < requests.size(); ++i) EXPECT_EQ(run.requests[i].outcome, Outcome::refused) << i;
  EXPECT_EQ(
      run.requests[1].reason,
      "request of 2000 prompt tokens: found up to 2060 tokens with its answer, expected at most 2048, the model's "
      "window; cut the prompt or ask for fewer tokens");
  EXPECT_EQ(run.requests[2].reason, "prompt, token 2: found id 500, expected an id of the vocabulary, 0 to 127");
  EXPECT_EQ(run.requests[3].reason, "prompt: found no tokens, expected at least one");
  EXPECT_NE(run.requests[4].reason.find("bytes of cache"), std::string::npos) << run.requests[4].reason;
}

/// Throws where a test asks it to.
class Broken final : public Method {
 public:
  enum class Where { compress, select };
  explicit Broken(Where where) : where_(where) {}
  void compress(LayerContext& /*layer*/, const LayerObservations& /*seen*/) const override {
    if (where_ == Where::compress) throw std::runtime_error("broke while compressing");
  }
  void select(LayerContext& layer, const LayerQueries& /*queries*/) const override {
    if (where_ == Where::select && layer.layer == 1) throw std::runtime_error("broke while selecting");
  }

 private:
  Where where_;
};

TEST_F(Serving, WhatOneRequestThrowsOrAbandonsLeavesOthersUntouched) {
  const Broken compresses(Broken::Where::compress), selects(Broken::Where::select);
  const Method* full = method({{"name", "full"}});
  const auto request = [&](const Method* by, uint64_t seed) {
    return ServedRequest{.prompt = tiny_prompt(150, seed), .method = by, .options = {.stop = {.max_new_tokens = 20}}};
  };
  std::vector<ServedRequest> requests = {request(full, 1), request(&compresses, 2), request(&selects, 3),
                                         request(full, 4), request(full, 5),        request(full, 6)};
  requests[3].patience_s = 0;  // leaves as soon as any time has gone by
  requests[4].options.stop.stop_when = [](std::span<const int32_t> tokens) -> bool {
    if (tokens.size() == 4) throw std::runtime_error("broke while reading the answer");
    return false;
  };
  ServingEngine engine(model_, requests, facts_);
  const ServingRun run = serve(Load::at_times(std::vector<double>(6, 0)), engine, {.pass_tokens = 200});
  EXPECT_EQ(run.requests[1].reason, "broke while compressing");
  EXPECT_EQ(run.requests[2].reason, "broke while selecting");
  EXPECT_EQ(run.requests[3].outcome, Outcome::cancelled);
  EXPECT_EQ(run.requests[4].reason, "broke while reading the answer");
  for (const size_t i : {1, 2, 4}) EXPECT_EQ(run.requests[i].outcome, Outcome::failed) << i;
  for (const int64_t i : {0, 5}) {
    ASSERT_EQ(run.requests[static_cast<size_t>(i)].outcome, Outcome::answered) << i;
    EXPECT_EQ(engine.answer(i)->tokens, alone(requests[static_cast<size_t>(i)]));
    EXPECT_EQ(engine.bytes_now(i), 0);
  }
  for (const int64_t i : {1, 2, 3, 4}) {
    EXPECT_FALSE(engine.answer(i).has_value());
    EXPECT_EQ(engine.bytes_now(i), 0);
  }
}

/// Passes an engine's results on, and counts how often each request is answered.
class Counting final : public serving::Executor {
 public:
  explicit Counting(ServingEngine& engine) : engine_(&engine) {}
  [[nodiscard]] serving::RequestNeeds needs(int64_t request) const override { return engine_->needs(request); }
  [[nodiscard]] int64_t bytes_to_end(int64_t request) const override { return engine_->bytes_to_end(request); }
  [[nodiscard]] int64_t bytes_now(int64_t request) const override { return engine_->bytes_now(request); }
  void drop(int64_t request) override { engine_->drop(request); }
  serving::PassResult run(const serving::PassPlan& plan) override {
    serving::PassResult result = engine_->run(plan);
    for (const serving::RequestProgress& progress : result.progress) answers[progress.request] += progress.finished;
    return result;
  }

  std::map<int64_t, int64_t> answers;

 private:
  ServingEngine* engine_;
};

/// Times of arrival are shares of a capacity that was measured just before, so that passes fall differently each time.
TEST_F(Serving, AtEveryLoadAndInEveryOrderEachRequestIsAnsweredOnceAndAlike) {
  const std::vector<const Method*> kinds = every_kind();
  std::vector<ServedRequest> requests;
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 0; i < 24; ++i) {
    requests.push_back({.prompt = tiny_prompt(static_cast<int64_t>(60 + 7 * i), i),
                        .method = kinds[i % kinds.size()],
                        .options = {.stop = {.max_new_tokens = static_cast<int64_t>(1 + i % 9)}}});
    expected.push_back(alone(requests.back()));
  }
  const BatchSettings settings{.pass_tokens = 128, .max_running = 6};
  ServingEngine closed(model_, requests, facts_);
  const ServingRun busy = serve(Load::of_clients(6, static_cast<int64_t>(requests.size())), closed, settings);
  const double capacity = static_cast<double>(requests.size()) / busy.seconds;
  uint64_t seed = 0;
  for (const double share : {0.5, 0.9, 1.2}) {
    const RandomStream random(++seed, "orders");
    std::vector<size_t> order(requests.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
    std::vector<ServedRequest> shuffled;
    std::vector<double> times;
    for (const size_t i : order) {
      shuffled.push_back(requests[i]);
      times.push_back((times.empty() ? 0 : times.back()) - std::log1p(-random.uniform(1000 + i)) / (share * capacity));
    }
    ServingEngine engine(model_, shuffled, facts_);
    Counting counted(engine);
    const ServingRun run = serve(Load::at_times(times), counted, settings);
    ASSERT_EQ(run.requests.size(), requests.size());
    for (size_t r = 0; r < order.size(); ++r) {
      SCOPED_TRACE(fmt::format("load {}, request {} came as {}", share, order[r], r));
      EXPECT_EQ(run.requests[r].outcome, Outcome::answered) << run.requests[r].reason;
      EXPECT_EQ(counted.answers[static_cast<int64_t>(r)], 1);
      EXPECT_EQ(run.requests[r].token_s.size(), expected[order[r]].size());
      EXPECT_EQ(engine.answer(static_cast<int64_t>(r))->tokens, expected[order[r]]);
    }
  }
}

TEST_F(Serving, ClientsThatAskAgainGetTheSameAnswers) {
  const Method* kind = method({{"name", "kivi"}});
  std::vector<ServedRequest> requests;
  for (uint64_t i = 0; i < 7; ++i) {
    requests.push_back({.prompt = tiny_prompt(100 + static_cast<int64_t>(i), i),
                        .method = kind,
                        .options = {.stop = {.max_new_tokens = 6}}});
  }
  ServingEngine engine(model_, requests, facts_);
  const ServingRun run = serve(Load::of_clients(2, 7), engine, {});
  EXPECT_EQ(run.peak_running, 2);
  for (int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(engine.answer(i)->tokens, alone(requests[static_cast<size_t>(i)]));
  }
}

}  // namespace
}  // namespace kvarena
