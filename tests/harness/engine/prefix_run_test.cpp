// Remote prefix caching on the measured clock: whatever comes when, the tokens are full KV's; drafting does not wait
// for the full cache; what a link carried is what was stored; a load that fails costs its request alone.

#include "harness/engine/serving/prefix_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/stored/stored_cache.h"
#include "harness/method/registry.h"
#include "harness/storage/remote/remote_storage.h"
#include "tests/support/error_of.h"
#include "tests/support/store_process.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using cost_model::Path;
using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr int64_t kPrompt = 300;
constexpr int64_t kNewTokens = 40;
constexpr int64_t kDraftLength = 4;

/// Holds a link's transfers back until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    if (!opened_.wait_for(lock, std::chrono::seconds(60), [this] { return open_; })) throw UserError("never opened");
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

class RemotePrefixes : public ::testing::Test {
 protected:
  RemotePrefixes() : model_(tiny_model()), facts_(model_facts(model_)) {}

  void make(const json& drafter) {
    drafter_ = make_method(drafter, "test");
    ASSERT_EQ(storing_problem(*drafter_), "") << drafter;
    verifier_ = make_method({{"name", "vericache"}, {"draft_length", kDraftLength}, {"drafter", drafter}}, "test");
  }
  void store(const json& drafter) {
    make(drafter);
    stored_ = store_prompt(model_, tiny_prompt(kPrompt), drafter_.get(), facts_);
  }

  [[nodiscard]] std::vector<int32_t> full_tokens(const SessionOptions& options) {
    const auto full = make_method({{"name", "full"}}, "test");
    const Prefill prompt = prefill(model_, tiny_prompt(kPrompt), {}, kPrefillChunk, facts_);
    const auto session = start_session(model_, prompt, *full, options);
    Session* const one = session.get();
    run_together(model_, {&one, 1});
    return session->tokens;
  }

  [[nodiscard]] PrefixRun run(std::vector<PrefixRequest> requests, const PrefixRunSettings& settings) {
    return run_prefixes(model_, {&stored_, 1}, verifier_->verifier(), options_, settings, requests);
  }

  static PrefixRunSettings linked(storage::LinkFault local = {}, storage::LinkFault remote = {}) {
    return {.local = {.link = {.name = "local"}, .fault = std::move(local)},
            .remote = {.link = {.name = "remote"}, .fault = std::move(remote)}};
  }

  /// The lines of both pools to a store.
  using Lines = std::array<std::shared_ptr<storage::StoreLine>, 2>;
  static Lines two_lines(const std::string& address, double local_bytes_per_s = 0) {
    return {std::make_shared<storage::StoreLine>(address, local_bytes_per_s),
            std::make_shared<storage::StoreLine>(address, 0)};
  }
  static PrefixRunSettings over(const Lines& lines) {
    PrefixRunSettings settings = linked();
    settings.local.read = [line = lines[0]](const auto& block, auto to) { line->read(block, 0, to); };
    settings.remote.read = [line = lines[1]](const auto& block, auto to) { line->read(block, 0, to); };
    settings.remote.devices = 2;
    return settings;
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  SessionOptions options_{.stop = {.max_new_tokens = kNewTokens}};
  std::unique_ptr<Method> drafter_;
  std::unique_ptr<Method> verifier_;
  StoredPrompt stored_;
};

TEST_F(RemotePrefixes, EveryPathGivesTheBitsOfFullKv) {
  const json drafters[] = {
      {{"name", "snapkv"}, {"keep", 0.2}}, {{"name", "knorm"}, {"keep", 0.4}}, {{"name", "cachegen"}},
      {{"name", "kivi"}, {"bits", 4}},     {{"name", "kvquant"}, {"bits", 3}}, {{"name", "rotatekv"}, {"bits", 4}}};
  for (const double temperature : {0.0, 0.8}) {
    options_.sampling.temperature = temperature;
    const std::vector<int32_t> expected = full_tokens(options_);
    for (const json& drafter : drafters) {
      store(drafter);
      for (const Path path : cost_model::all_paths) {
        SCOPED_TRACE(drafter.dump() + " " + std::string(cost_model::path_names[static_cast<size_t>(path)]));
        PrefixRunSettings settings = linked();
        settings.local.requests = 1;  // for whose room others wait
        settings.remote.devices = 2;
        const PrefixRun many = run(std::vector<PrefixRequest>(3, {.path = path}), settings);
        for (const PrefixAnswer& answer : many.answers) {
          ASSERT_EQ(answer.failure, "");
          EXPECT_EQ(answer.session->tokens, expected);
          EXPECT_GT(answer.first_token_s, 0);
          EXPECT_GE(answer.end_s, answer.first_token_s);
        }
      }
      const PrefixRun read = run({{.use = PrefixUse::recompute}}, linked());
      EXPECT_EQ(read.answers.front().session->tokens, expected);
    }
  }
}

TEST_F(RemotePrefixes, DraftingDoesNotWaitForTheFullCache) {
  const std::vector<int32_t> expected = full_tokens(options_);
  store({{"name", "snapkv"}, {"keep", 0.3}});
  for (const Path path : {Path::verify_only_cached, Path::verify_only_stateless}) {
    Gate gate;
    PrefixRunSettings settings = linked([&](int64_t) { gate.pass(); });
    settings.passed = [&](int64_t drafted) {
      if (drafted == kDraftLength) gate.open();
    };
    const PrefixRun one = run({{.path = path}}, settings);
    EXPECT_EQ(one.answers.front().failure, "");
    EXPECT_EQ(one.answers.front().session->tokens, expected);
    EXPECT_LE(one.answers.front().first_draft_s, one.answers.front().first_token_s);
  }
}

TEST_F(RemotePrefixes, WhatStreamedInDecodesPlainly) {
  const std::vector<int32_t> expected = full_tokens(options_);
  store({{"name", "snapkv"}, {"keep", 0.3}});
  for (const Path path : {Path::verify_streaming_cached, Path::verify_streaming_stateless}) {
    // The slow link's transfers: both compressed caches, the first request's full one, the second's. When the last one
    // begins, the one before it has come.
    Gate asked, drafted, arrived;
    PrefixRunSettings settings = linked({}, [&](int64_t transfer) {
      if (transfer == 2) {
        asked.open();
        drafted.pass();
      }
      if (transfer == 3) arrived.open();
    });
    int64_t passes = 0;
    settings.passed = [&](int64_t count) {
      asked.pass();
      if (++passes < 2 || count < kDraftLength) return;  // the second request asks in between
      drafted.open();
      arrived.pass();
    };
    const PrefixRun two = run({{.path = path}, {.path = path}}, settings);
    for (const PrefixAnswer& answer : two.answers) EXPECT_EQ(answer.session->tokens, expected);
    const VerifySession& first = *two.answers.front().session;
    EXPECT_GT(first.activity.tokens_drafted, 0);
    EXPECT_EQ(first.rounds.back().drafted, 0);
    EXPECT_EQ(two.remote.bytes, 2 * (stored_.compressed->bytes() + stored_.rest->bytes()));
  }
}

TEST_F(RemotePrefixes, LinksCarryWhatIsStored) {
  store({{"name", "snapkv"}, {"keep", 0.3}});
  const int64_t full = stored_.full->bytes(), compressed = stored_.compressed->bytes();
  EXPECT_LT(compressed, full / 2);
  struct Expected {
    PrefixRequest request;
    int64_t local, remote;
  };
  const Expected expected[] = {{{.path = Path::local}, full, 0},
                               {{.path = Path::remote}, 0, full},
                               {{.path = Path::verify_only_cached}, full, compressed},
                               {{.use = PrefixUse::compressed}, 0, compressed},
                               {{.use = PrefixUse::recompute}, 0, 0}};
  for (const Expected& each : expected) {
    const PrefixRun two = run({each.request, each.request}, linked());
    EXPECT_EQ(two.local.bytes, 2 * each.local);
    EXPECT_EQ(two.remote.bytes, 2 * each.remote);
  }
  const PrefixRun again = run({{.path = Path::verify_only_stateless}}, linked());
  EXPECT_EQ(again.local.bytes, static_cast<int64_t>(again.answers.front().session->rounds.size()) * full);
  EXPECT_EQ(again.remote.bytes, compressed);
}

TEST_F(RemotePrefixes, BytesCountBesideTheCacheThatIsMadeOfThem) {
  store({{"name", "snapkv"}, {"keep", 0.9}});
  struct Expected {
    PrefixRequest request;
    const storage::Block& stored;
    const Method* method;
  };
  const Expected expected[] = {{{.path = Path::remote}, *stored_.full, nullptr},
                               {{.use = PrefixUse::compressed}, *stored_.compressed, drafter_.get()}};
  for (const Expected& each : expected) {
    const int64_t bytes = each.stored.bytes();
    const int64_t both = bytes + restore_cache(model_, *facts_, each.method, each.stored.memory()).bytes();
    EXPECT_GT(both, 3 * bytes / 2);
    const PrefixRun one = run({each.request}, linked());
    ASSERT_EQ(one.answers.front().failure, "");
    EXPECT_GE(one.peak_bytes, both);
    EXPECT_LT(one.peak_bytes, both + bytes / 2);
    EXPECT_GE(one.answers.front().session->peak_bytes, both);
  }
}

TEST_F(RemotePrefixes, ALoadThatFailsEndsItsRequestAlone) {
  store({{"name", "snapkv"}, {"keep", 0.3}});
  const auto lost = [](int64_t transfer) {
    if (transfer == 1) throw UserError("the store lost a page");
  };
  for (const bool of_local : {true, false}) {
    const PrefixRun three = run(std::vector<PrefixRequest>(3, {.path = Path::verify_only_cached}),
                                of_local ? linked(lost) : linked({}, lost));
    for (size_t i = 0; i < 3; ++i) {
      const PrefixAnswer& answer = three.answers[i];
      if (i == 1) {
        EXPECT_NE(answer.failure.find("the store lost a page"), std::string::npos) << answer.failure;
      } else {
        EXPECT_EQ(answer.failure, "");
        EXPECT_EQ(answer.session->tokens.size(), static_cast<size_t>(kNewTokens));
      }
    }
  }
}

TEST_F(RemotePrefixes, WithoutACopyInTheStoreThePromptIsRead) {
  const std::vector<int32_t> expected = full_tokens(options_);
  store({{"name", "snapkv"}, {"keep", 0.3}});
  stored_.compressed.reset();
  const PrefixRun both = run({{.path = Path::verify_only_cached}, {.path = Path::remote}}, linked());
  EXPECT_EQ(both.answers[0].use, PrefixUse::recompute);
  EXPECT_EQ(both.answers[1].use, PrefixUse::path);
  stored_.full.reset();
  const PrefixRun none = run({{.path = Path::remote}}, linked());
  EXPECT_EQ(none.answers[0].use, PrefixUse::recompute);
  EXPECT_EQ(none.remote.bytes, 0);
  for (const PrefixRun* each : {&both, &none}) {
    for (const PrefixAnswer& answer : each->answers) EXPECT_EQ(answer.session->tokens, expected);
  }
}

TEST_F(RemotePrefixes, WhatTheCompressedCacheSaysAloneIsItsOwnPlainDecoding) {
  store({{"name", "snapkv"}, {"keep", 0.05}});
  const PrefixRun lossy = run({{.use = PrefixUse::compressed}}, linked());
  EXPECT_EQ(lossy.answers.front().failure, "");
  EXPECT_EQ(lossy.answers.front().session->tokens.size(), static_cast<size_t>(kNewTokens));
  EXPECT_NE(lossy.answers.front().session->tokens, full_tokens(options_));
}

TEST_F(RemotePrefixes, RequestsOfDistinctPromptsAreServedTogether) {
  store({{"name", "kivi"}, {"bits", 4}});
  const auto full = make_method({{"name", "full"}}, "test");
  std::vector<StoredPrompt> prompts;
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 0; i < 3; ++i) {
    const std::vector<int32_t> prompt = tiny_prompt(static_cast<int64_t>(200 + 50 * i), i);
    prompts.push_back(store_prompt(model_, prompt, drafter_.get(), facts_));
    const auto session = start_session(model_, prefill(model_, prompt, {}, kPrefillChunk, facts_), *full, options_);
    Session* const one = session.get();
    run_together(model_, {&one, 1});
    expected.push_back(session->tokens);
  }
  EXPECT_NE(expected[0], expected[1]);
  for (const Path path : cost_model::all_paths) {
    SCOPED_TRACE(std::string(cost_model::path_names[static_cast<size_t>(path)]));
    const PrefixRequest requests[] = {{.prompt = 2, .path = path},
                                      {.prompt = 0, .path = path},
                                      {.prompt = 1, .path = path},
                                      {.prompt = 2, .path = path}};
    const PrefixRun all = run_prefixes(model_, prompts, verifier_->verifier(), options_, linked(), requests);
    int64_t compressed = 0;
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_EQ(all.answers[i].failure, "");
      EXPECT_EQ(all.answers[i].session->tokens, expected[requests[i].prompt]);
      compressed += prompts[requests[i].prompt].compressed->bytes();
    }
    if (path == Path::verify_only_cached) {
      EXPECT_EQ(all.remote.bytes, compressed);
    }
  }
}

TEST_F(RemotePrefixes, LoadsForVerificationsTakeTurnsOnTheLinkAndAreThereInTime) {
  store({{"name", "snapkv"}, {"keep", 0.3}});
  constexpr double kIteration = 0.05;
  PrefixRunSettings settings = linked();
  // A full cache takes an iteration and a half of its link, so two windows of three quarters each.
  settings.local.link.bytes_per_s = static_cast<double>(stored_.full->bytes()) / (1.5 * kIteration);
  settings.iteration_seconds = kIteration;
  settings.passed = [&](int64_t) { std::this_thread::sleep_for(std::chrono::duration<double>(kIteration)); };
  std::vector<std::pair<size_t, int64_t>> local;
  settings.loads = [&](size_t request, bool of_local, int64_t iteration) {
    if (of_local) local.push_back({request, iteration});
  };
  options_.stop.max_new_tokens = 8;
  const PrefixRun two = run({{.path = Path::verify_only_cached}, {.path = Path::verify_only_cached}}, settings);
  for (const PrefixAnswer& answer : two.answers) EXPECT_EQ(answer.failure, "");
  // Four drafts end after windows 0 to 3: the first load is in 2 and 3, the second one in 4 and 5.
  ASSERT_EQ(local.size(), 2U);
  EXPECT_EQ(local[0].first, 0U);
  EXPECT_EQ(local[1].first, 1U);
  EXPECT_GE(local[0].second, 2);
  EXPECT_EQ(local[1].second - local[0].second, 2);
  EXPECT_EQ(two.late_verifies, 0);
}

TEST_F(RemotePrefixes, CachesComeFromAnotherProcessBitForBit) {
  const std::vector<int32_t> expected = full_tokens(options_);
  testing::StoreProcess process("127.0.0.1:0");
  const auto lines = two_lines(process.address());
  storage::RemoteStorage store(std::make_shared<storage::StoreLine>(process.address(), 0));
  int64_t bytes = 0, reads = 0;
  for (const json& drafter : {json{{"name", "snapkv"}, {"keep", 0.3}}, json{{"name", "kivi"}, {"bits", 4}}}) {
    make(drafter);
    stored_ = store_prompt(model_, tiny_prompt(kPrompt), drafter_.get(), facts_, &store);
    EXPECT_TRUE(stored_.full->memory().empty()) << "it lies elsewhere";
    for (const Path path : cost_model::all_paths) {
      SCOPED_TRACE(drafter.dump() + " " + std::string(cost_model::path_names[static_cast<size_t>(path)]));
      const PrefixRun two = run(std::vector<PrefixRequest>(2, {.path = path}), over(lines));
      for (const PrefixAnswer& answer : two.answers) {
        ASSERT_EQ(answer.failure, "");
        EXPECT_EQ(answer.session->tokens, expected);
      }
      bytes += two.local.bytes + two.remote.bytes;
      reads += two.local.transfers + two.remote.transfers;
    }
  }
  EXPECT_EQ(process.end(), fmt::format("{} bytes sent in {} reads", bytes, reads));
}

TEST_F(RemotePrefixes, AStoreThatDiesEndsItsRequestsInTime) {
  testing::StoreProcess process("127.0.0.1:0");
  const auto lines = two_lines(process.address(), /*local_bytes_per_s=*/10'000);  // slower than the test
  storage::RemoteStorage store(std::make_shared<storage::StoreLine>(process.address(), 0));
  make({{"name", "snapkv"}, {"keep", 0.3}});
  stored_ = store_prompt(model_, tiny_prompt(kPrompt), drafter_.get(), facts_, &store);
  PrefixRunSettings settings = over(lines);
  settings.passed = [&](int64_t) { (void)process.end(SIGKILL); };
  const PrefixRun run = this->run(std::vector<PrefixRequest>(2, {.path = Path::verify_only_cached}), settings);
  for (const PrefixAnswer& answer : run.answers) {
    EXPECT_NE(answer.failure.find("store " + process.address()), std::string::npos) << answer.failure;
  }
  EXPECT_LT(run.seconds, storage::kStorePatience);
  EXPECT_NE(testing::error_of([&] {
              (void)store_prompt(model_, tiny_prompt(kPrompt), nullptr, facts_, &store);
            }).find("store " + process.address()),
            std::string::npos);
}

TEST_F(RemotePrefixes, RequestsComeWhenTheyCome) {
  store({{"name", "snapkv"}, {"keep", 0.3}});
  const PrefixRun two = run({{.path = Path::remote}, {.path = Path::remote, .arrival_s = 0.05}}, linked());
  for (const PrefixAnswer& answer : two.answers) {
    EXPECT_EQ(answer.failure, "");
    EXPECT_GT(answer.first_token_s, 0);
  }
  EXPECT_GE(two.seconds, 0.05);
}

TEST_F(RemotePrefixes, WhatCannotBeStoredIsExplained) {
  const auto gear = make_method({{"name", "gear"}}, "test");
  EXPECT_THROW((void)store_prompt(model_, tiny_prompt(kPrompt), gear.get(), facts_), UserError);
  EXPECT_THROW((void)store_prompt(model_, tiny_prompt(1), nullptr, facts_), UserError);
}

}  // namespace
}  // namespace kvarena
