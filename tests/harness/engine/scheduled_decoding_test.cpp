// Verification schedules on the measured clock: full caches behind a link, the same tokens and bits as full KV, device
// memory that is never exceeded.

#include "harness/engine/serving/scheduled_decoding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/serving/batch_run.h"
#include "harness/engine/session/request_bytes.h"
#include "harness/method/registry.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr int64_t kPrompt = 400;
constexpr int64_t kNewTokens = 40;
const std::vector<std::string> kSchedules = {"staggered", "lock_step", "sequential"};

storage::HierarchyPtr host(double bytes_per_s, storage::LinkFault fault = {}) {
  return std::make_shared<storage::Hierarchy>(std::vector<storage::TierSettings>{
      {.tier = Tier::host, .link = {.name = "test", .bytes_per_s = bytes_per_s}, .fault = std::move(fault)}});
}
/// On its link a full cache of the tests takes about a millisecond.
storage::HierarchyPtr slow_host(storage::LinkFault fault = {}) { return host(500e6, std::move(fault)); }
/// On its link a full cache takes less than a pass on any machine: it is back an iteration later.
storage::HierarchyPtr fast_host() { return host(500e9); }

/// Main memory, behind what copying there and back takes.
storage::HierarchyPtr real_host() { return std::make_shared<storage::Hierarchy>(storage::usual_tiers()); }
storage::HierarchyPtr small_host(int64_t bytes) {
  return std::make_shared<storage::Hierarchy>(std::vector<storage::TierSettings>{
      {.tier = Tier::host, .capacity_bytes = bytes, .link = {.name = "test", .bytes_per_s = 500e6}}});
}

/// Requests of one prompt that are started by hand.
class ByHand {
 public:
  ByHand(Transformer& model, const Prefill& prompt, const Method& method, const SessionOptions& options, int64_t room,
         int64_t full_bytes)
      : model_(&model),
        prompt_(&prompt),
        method_(&method),
        options_(options),
        full_(full_bytes),
        memory_(std::make_shared<serving::Admission>(room)),
        decoding_(scheduled_settings(method, model, prompt.model->tiers), memory_) {
    options_.offload_tier = Tier::host;
  }

  [[nodiscard]] bool may_start() { return decoding_.may_start(full_, full_ / 10); }
  /// Promises others so many bytes, if they may have them now.
  [[nodiscard]] serving::Admission::Place promise(int64_t bytes) {
    return decoding_.may_start(0, bytes) ? memory_->admit({.own = bytes}) : nullptr;
  }
  void start() {
    sessions_.push_back(start_session(*model_, *prompt_, *method_, options_));
    run_to_first_token(*model_, *sessions_.back());
    decoding_.add(session(std::ssize(sessions_) - 1), full_, full_ / 10);
  }
  void pass(double seconds) {
    std::vector<PassMember*> fed;
    for (VerifySession* each : decoding_.next()) fed.push_back(each);
    run_pass(*model_, fed);
    decoding_.advance(seconds);
  }
  void finish(double pass_seconds) {
    while (decoding_.running() > 0) pass(pass_seconds);
  }

  [[nodiscard]] VerifySession& session(int64_t i) { return dynamic_cast<VerifySession&>(*sessions_[i]); }
  [[nodiscard]] const OffloadedCache& full_cache(int64_t i) { return *session(i).offloaded(); }
  [[nodiscard]] const std::vector<std::unique_ptr<Session>>& sessions() const { return sessions_; }
  [[nodiscard]] const ScheduledDecoding& decoding() const { return decoding_; }

 private:
  Transformer* model_;
  const Prefill* prompt_;
  const Method* method_;
  SessionOptions options_;
  int64_t full_;
  std::shared_ptr<serving::Admission> memory_;
  std::vector<std::unique_ptr<Session>> sessions_;
  ScheduledDecoding decoding_;
};

class Scheduled : public ::testing::Test {
 protected:
  Scheduled() : model_(tiny_model()) {}

  [[nodiscard]] Prefill prompt(const Method& method, storage::HierarchyPtr tiers) {
    return prefill(model_, tiny_prompt(kPrompt), method.needs(), kPrefillChunk,
                   model_facts(model_, {}, std::move(tiers)));
  }

  [[nodiscard]] BatchRun run(const json& spec, const BatchRunSettings& settings, const SessionOptions& options,
                             storage::HierarchyPtr tiers = slow_host(), const BatchRunEvents& events = {}) {
    methods_.push_back(make_method(spec, "test"));
    prompts_.push_back(prompt(*methods_.back(), std::move(tiers)));
    return run_batch(model_, prompts_.back(), *methods_.back(), options, settings, events);
  }

  [[nodiscard]] ByHand by_hand(const json& spec, int64_t room, const SessionOptions& options,
                               storage::HierarchyPtr tiers) {
    methods_.push_back(make_method(spec, "test"));
    const Method& method = *methods_.back();
    prompts_.push_back(prompt(method, std::move(tiers)));
    return {model_, prompts_.back(), method, options, room, full_bytes()};
  }

  [[nodiscard]] static json scheduled(const std::string& schedule, const json& drafter, int64_t draft_length = 4) {
    return {{"name", "vericache"}, {"draft_length", draft_length}, {"schedule", schedule}, {"drafter", drafter}};
  }

  [[nodiscard]] int64_t full_bytes() const { return full_cache_bytes(model_, kPrompt + kNewTokens); }

  Transformer model_;
  std::vector<std::unique_ptr<Method>> methods_;  // outlive the sessions of a run
  std::deque<Prefill> prompts_;
};

TEST_F(Scheduled, EveryScheduleGivesTheBitsOfFullKvOverEveryKindOfCompressor) {
  const json drafters[] = {{{"name", "snapkv"}, {"keep", 0.2}},
                           {{"name", "streaming_llm"}, {"tokens", 64}},
                           {{"name", "h2o"}, {"keep", 0.3}},
                           {{"name", "kivi"}, {"bits", 2}, {"value_bits", 2}},
                           {{"name", "quarot_kv"}, {"bits", 4}}};
  std::vector<std::vector<float>> rows;
  SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  options.on_logits = [&](int64_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); };
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  const std::vector<std::vector<float>> expected = rows;
  for (const std::string& schedule : kSchedules) {
    for (const json& drafter : drafters) {
      SCOPED_TRACE(schedule + " over " + drafter.dump());
      rows.clear();
      const BatchRun one = run(scheduled(schedule, drafter), {.requests = 1}, options);
      EXPECT_EQ(one.sessions.front()->tokens, plain.sessions.front()->tokens);
      EXPECT_EQ(rows, expected);

      options.on_logits = {};
      const BatchRun many = run(scheduled(schedule, drafter), {.requests = 5}, options);
      for (const auto& session : many.sessions) EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
      options.on_logits = [&](int64_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); };
    }
  }
}

TEST_F(Scheduled, SampledTokensAreThoseOfFullKvToo) {
  SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  options.sampling.temperature = 0.8;
  options.sampling.seed = 5;
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  for (const std::string& schedule : kSchedules) {
    const json spec = scheduled(schedule, {{"name", "snapkv"}, {"keep", 0.2}});
    const BatchRun many = run(spec, {.requests = 3}, options);
    for (const auto& session : many.sessions) EXPECT_EQ(session->tokens, plain.sessions.front()->tokens) << schedule;
  }
}

TEST_F(Scheduled, AuxiliaryDraftersAreScheduledAsWell) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  json spec = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.3}});
  spec["aux"] = {{"name", "ngram"}};
  const BatchRun many = run(spec, {.requests = 3}, options);
  for (const auto& session : many.sessions) EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
}

TEST_F(Scheduled, DeviceMemoryIsNeverExceededAndRequestsWaitForIt) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const int64_t room = 2 * full_bytes();
  for (const std::string& schedule : kSchedules) {
    SCOPED_TRACE(schedule);
    const json spec = scheduled(schedule, {{"name", "snapkv"}, {"keep", 0.05}});
    const BatchRun many = run(spec, {.requests = 12, .device_bytes = room}, options);
    EXPECT_TRUE(many.scheduled);
    EXPECT_LE(many.peak_bytes, room);
    EXPECT_LT(many.peak_running, 6);
    EXPECT_GT(many.link_busy_seconds, 0);
    for (const auto& session : many.sessions) {
      EXPECT_EQ(session->tokens.size(), static_cast<size_t>(kNewTokens));
      EXPECT_GT(session->peak_host_bytes, 0);
      EXPECT_GT(session->activity.traffic.loaded_bytes, 0);
    }
  }
}

TEST_F(Scheduled, StartsCountAlsoWhereNothingIsVerified) {
  const json spec = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.05}});
  const BatchRun run = this->run(spec, {.requests = 2}, {.stop = {.max_new_tokens = 1}});
  EXPECT_TRUE(run.passes.empty());
  const int64_t full = prompts_.back().cache.bytes();
  EXPECT_GT(run.peak_bytes, full);
  EXPECT_LT(run.peak_bytes, full + full / 5) << "and what is drafted on";
}

TEST_F(Scheduled, StaggeredVerifiesAmongDraftsAndRunsMoreRequestsThanLockStep) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const int64_t room = 3 * full_bytes();
  const json drafter = {{"name", "snapkv"}, {"keep", 0.05}};
  const BatchRun staggered =
      run(scheduled("staggered", drafter), {.requests = 6, .device_bytes = room}, options, fast_host());
  const BatchRun lock_step =
      run(scheduled("lock_step", drafter), {.requests = 6, .device_bytes = room}, options, fast_host());
  EXPECT_GT(staggered.peak_running, lock_step.peak_running);
  bool mixed = false;
  for (const cost_model::ScheduledIteration& pass : staggered.passes) {
    mixed = mixed || (pass.verifying > 0 && pass.drafting > 0);
  }
  EXPECT_TRUE(mixed);
  for (const cost_model::ScheduledIteration& pass : lock_step.passes) {
    EXPECT_TRUE(pass.verifying == 0 || pass.drafting == 0);
  }
}

TEST_F(Scheduled, FullCachesStayWhereThereIsRoom) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  json spec = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.05}});
  spec["fall_back"] = false;
  const int64_t room = 11 * full_bytes() / 2;  // of 5 requests two stay, two come and go
  const BatchRun some = run(spec, {.requests = 5, .device_bytes = room}, options);
  EXPECT_EQ(some.peak_running, 5);
  EXPECT_GE(some.peak_pinned, 2);
  EXPECT_LE(some.peak_bytes, room);
  EXPECT_EQ(some.fallen_back, 0);
  const int64_t once = full_cache_bytes(model_, kPrompt) * 63 / 64;
  const auto loaded = [](const SessionResult& session) { return session.activity.traffic.loaded_bytes; };
  EXPECT_LT(loaded(*some.sessions[0]), 2 * once);
  EXPECT_LT(loaded(*some.sessions[1]), 2 * once);
  EXPECT_GT(loaded(*some.sessions[4]), 2 * once);

  spec["pin"] = false;
  const BatchRun none = run(spec, {.requests = 5, .device_bytes = room}, options);
  EXPECT_EQ(none.peak_pinned, 0);
  for (const auto& session : none.sessions) {
    EXPECT_GE(loaded(*session), std::ssize(session->rounds) * once);
    EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
  }
  for (const auto& session : some.sessions) EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
}

TEST_F(Scheduled, AFullCacheThatStayedLeavesForALaterRequest) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  json spec = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.05}});
  spec["fall_back"] = false;
  ByHand requests = by_hand(spec, 5 * full_bytes() / 2, options, fast_host());
  requests.start();
  const OffloadedCache& first = requests.full_cache(0);
  while (requests.session(0).rounds.empty()) requests.pass(1);
  EXPECT_TRUE(first.stays());
  EXPECT_GT(first.device_bytes(), 0);
  EXPECT_TRUE(requests.may_start());  // two full caches and both compressed ones have room
  EXPECT_TRUE(first.stays());
  requests.start();
  EXPECT_TRUE(first.stays());
  EXPECT_TRUE(requests.may_start());  // two of three come and go
  EXPECT_FALSE(first.stays());
  EXPECT_EQ(first.device_bytes(), 0);
  requests.start();
  requests.finish(1);
  for (const auto& session : requests.sessions()) {
    EXPECT_EQ(session->failure, "");
    EXPECT_EQ(session->tokens.size(), kNewTokens);
    EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
  }
}

TEST_F(Scheduled, FullCachesLeaveWhatOthersArePromised) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  json spec = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.05}});
  spec["fall_back"] = false;
  const int64_t room = 5 * full_bytes() / 2, others = 4 * full_bytes() / 5;
  ByHand requests = by_hand(spec, room, options, fast_host());
  const auto stay = [&] { return requests.full_cache(0).stays() + requests.full_cache(1).stays(); };
  requests.start();
  requests.start();
  for (int i = 0; stay() < 2; requests.pass(1)) ASSERT_LT(i++, 40);
  EXPECT_EQ(requests.promise(2 * full_bytes()), nullptr) << "none of them would ever come back";
  EXPECT_EQ(stay(), 2);
  serving::Admission::Place place = requests.promise(others);
  ASSERT_NE(place, nullptr);
  EXPECT_EQ(stay(), 0) << "beside the others' there is room for one";
  for (int i = 0; i < 8; ++i) {
    requests.pass(1);
    EXPECT_LE(requests.decoding().full_bytes_claimed() + 2 * (full_bytes() / 10) + others, room);
  }
  EXPECT_EQ(stay(), 0);
  place.reset();
  for (int i = 0; stay() < 2; requests.pass(1)) ASSERT_LT(i++, 40);
  requests.finish(1);
  for (const auto& session : requests.sessions()) EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
}

TEST_F(Scheduled, AStartWaitsForFullCachesOnTheirWayAndGoesBeforeFurtherOnes) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  json spec = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.05}});
  spec["pin"] = false;
  ByHand requests = by_hand(spec, 9 * full_bytes() / 4, options, slow_host());
  requests.start();
  requests.start();
  const auto coming = [&] { return requests.full_cache(0).is_coming() + requests.full_cache(1).is_coming(); };
  const auto verified = [&] { return std::ssize(requests.session(0).rounds) + std::ssize(requests.session(1).rounds); };
  constexpr double kPass = 3e-4;  // a full cache takes some of them
  for (int i = 0; coming() == 0; requests.pass(kPass)) ASSERT_LT(i++, 100);
  const int64_t begun = verified() + coming();
  EXPECT_FALSE(requests.may_start());
  while (!requests.may_start()) requests.pass(kPass);
  EXPECT_EQ(coming(), 0);
  EXPECT_EQ(verified(), begun);
  requests.start();
  requests.finish(kPass);
  for (const auto& session : requests.sessions()) EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
}

TEST_F(Scheduled, DraftsThatFailEndWhereTheFullCacheStays) {
  SessionOptions options{.stop = {.max_new_tokens = 120}};
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  const json spec = scheduled("staggered", {{"name", "random"}, {"keep", 0.02}});
  const BatchRun many = run(spec, {.requests = 3}, options);
  EXPECT_EQ(many.peak_pinned, 3);
  EXPECT_EQ(many.fallen_back, 3);
  for (const auto& session : many.sessions) {
    EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
    EXPECT_EQ(session->rounds.back().drafted, 0);
    EXPECT_EQ(session->rounds.back().emitted, 1);
  }
  EXPECT_LE(many.passes.back().memory_bytes, static_cast<double>(3 * full_cache_bytes(model_, kPrompt + 120)));
}

/// Two of four full caches have room, and passes all take a second. Where no draft is accepted, a round of 16 takes 17
/// seconds and gives 4 tokens; full KV gives 2 in the three that a pass takes which reads three times as much. Where
/// most are, a round of 2 gives about 10 in three seconds.
TEST_F(Scheduled, EverybodyDecodesOnFullKvWhereThatGivesMoreTokensASecond) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  const auto fallen_back = [&](const json& drafter, int64_t draft_length) {
    ByHand requests =
        by_hand(scheduled("staggered", drafter, draft_length), 5 * full_bytes() / 2, options, fast_host());
    for (int i = 0; i < 4; ++i) {
      while (!requests.may_start()) requests.pass(1);
      requests.start();
    }
    requests.finish(1);
    for (const auto& session : requests.sessions()) EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
    return requests.decoding().fallen_back();
  };
  EXPECT_EQ(fallen_back({{"name", "random"}, {"keep", 0.02}}, 16), 4);
  EXPECT_EQ(fallen_back({{"name", "quarot_kv"}, {"bits", 8}}, 2), 0);
}

TEST_F(Scheduled, PlainRequestsWaitForRoomToo) {
  const SessionOptions options{.stop = {.max_new_tokens = 10}};
  const BatchRun alone = run({{"name", "full"}}, {}, options);
  const BatchRun few = run({{"name", "full"}}, {.requests = 5, .device_bytes = 5 * full_bytes() / 2}, options);
  EXPECT_EQ(few.peak_running, 2);
  EXPECT_LE(few.peak_bytes, 5 * full_bytes() / 2);
  for (const auto& session : few.sessions) EXPECT_EQ(session->tokens, alone.sessions.front()->tokens);
}

TEST_F(Scheduled, WhatARequestHeldIsFreeWhenItHasFinished) {
  const SessionOptions options{.stop = {.max_new_tokens = 10}};
  const MemoryLedger& process = MemoryLedger::process();
  const json verifies = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.05}});
  for (const json& spec : {json{{"name", "full"}}, verifies}) {
    SCOPED_TRACE(spec.dump());
    int64_t prompt_bytes = 0, device = 0, host = 0;  // at most, beside the prompt's
    const BatchRunEvents events{.started = [&] { prompt_bytes = prompts_.back().cache.bytes(); },
                                .passed =
                                    [&](const SessionResult& first, double) {
                                      EXPECT_LE(first.tokens.size(), 10U);
                                      device = std::max(device, process.current(Tier::device) - prompt_bytes);
                                      host = std::max(host, process.current(Tier::host));
                                    }};
    const int64_t before = process.current(Tier::device), host_before = process.current(Tier::host);
    const BatchRun few =
        run(spec, {.requests = 24, .device_bytes = 5 * full_bytes() / 2}, options, slow_host(), events);
    EXPECT_EQ(few.sessions.size(), 24U);
    EXPECT_LE(few.peak_running, 12);
    EXPECT_LE(device - before, few.peak_bytes);
    EXPECT_LE(host - host_before, 11 * few.peak_running * full_bytes() / 10);
    for (const auto& session : few.sessions) {
      EXPECT_EQ(session->tokens.size(), 10U);
      EXPECT_GT(session->peak_bytes, 0);
    }
  }
}

TEST_F(Scheduled, ARealLinkIsMeasuredAndBringsTheBitsOfFullKv) {
  std::vector<std::vector<float>> rows;
  SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  options.on_logits = [&](int64_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); };
  const BatchRun plain = run({{"name", "full"}}, {}, options, real_host());
  const std::vector<std::vector<float>> expected = rows;
  EXPECT_EQ(plain.link_bytes_per_s, 0);
  for (const std::string& schedule : kSchedules) {
    SCOPED_TRACE(schedule);
    rows.clear();
    json spec = scheduled(schedule, {{"name", "snapkv"}, {"keep", 0.2}});
    spec["fall_back"] = false;  // every round reloads
    EXPECT_EQ(run(spec, {.requests = 1}, options, real_host()).sessions.front()->tokens,
              plain.sessions.front()->tokens);
    EXPECT_EQ(rows, expected);

    options.on_logits = {};
    const BatchRun many = run(spec, {.requests = 5, .device_bytes = 3 * full_bytes()}, options, real_host());
    EXPECT_GT(many.link_bytes_per_s, 1e6);
    EXPECT_LE(many.peak_bytes, 3 * full_bytes());
    for (const auto& session : many.sessions) {
      EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
      const Traffic& traffic = session->activity.traffic;
      EXPECT_GE(traffic.loaded_bytes, std::ssize(session->rounds) * full_cache_bytes(model_, kPrompt) * 63 / 64);
      EXPECT_GT(traffic.link_seconds, 0);
    }
    options.on_logits = [&](int64_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); };
  }
}

TEST_F(Scheduled, FullCachesMayLieOnTheDisk) {
  const testing::TemporaryFolder folder;
  std::vector<storage::TierSettings> tiers = storage::usual_tiers();
  tiers.push_back({.tier = Tier::disk, .link = storage::link_named("real", "test"), .folder = folder.path()});
  const auto hierarchy = std::make_shared<storage::Hierarchy>(tiers);
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const BatchRun plain = run({{"name", "full"}}, {}, options);
  json spec = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.05}});
  spec["tier"] = "disk";
  const BatchRun many = run(spec, {.requests = 4, .device_bytes = 3 * full_bytes()}, options, hierarchy);
  EXPECT_LE(many.peak_bytes, 3 * full_bytes());
  for (const auto& session : many.sessions) {
    EXPECT_EQ(session->tokens, plain.sessions.front()->tokens);
    EXPECT_EQ(session->peak_host_bytes, 0);
    EXPECT_GE(session->peak_disk_bytes, full_cache_bytes(model_, kPrompt) * 63 / 64);
  }
  EXPECT_THROW((void)run(spec, {}, options, real_host()), UserError);  // there is no disk
}

TEST_F(Scheduled, ALinksRateIsTheSpecsOrThatOfReloads) {
  EXPECT_EQ(reload_rate(model_, host(123), Tier::host), 123);
  std::vector<storage::TierSettings> tiers = storage::usual_tiers();
  tiers.front().fault = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  const double slow = reload_rate(model_, std::make_shared<storage::Hierarchy>(tiers), Tier::host);
  EXPECT_GT(slow, 1e4);
  EXPECT_LT(slow, 2.1e6 / 0.03);  // 2 MiB in no less than 30 ms
  EXPECT_GT(reload_rate(model_, real_host(), Tier::host), slow);
}

TEST_F(Scheduled, LoadsAtArrivalTakeTheLinkWhereReloadsLeaveIt) {
  methods_.push_back(make_method(scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.2}}), "test"));
  prompts_.push_back(prompt(*methods_.back(), fast_host()));
  const auto started =
      start_session(model_, prompts_.back(), *methods_.back(),
                    {.stop = {.max_new_tokens = kNewTokens}, .forced = std::nullopt, .offload_tier = Tier::host});
  run_to_first_token(model_, *started);
  auto& session = dynamic_cast<VerifySession&>(*started);
  const double iteration = IterationEstimate().seconds();
  const auto full = static_cast<double>(full_bytes());
  ScheduledDecoding decoding({.draft_length = 4, .link_bytes_per_s = full / (1.5 * iteration), .pin = false},
                             std::make_shared<serving::Admission>(4 * full_bytes()));
  decoding.add(session, full_bytes(), 0);
  std::vector<int64_t> began(2, -1), verified;
  for (int64_t i = 0; i < 8; ++i) {
    // The reload is in two windows, 3 and 4, three quarters of each.
    if (i == 1) {
      EXPECT_EQ(decoding.add_load(static_cast<int64_t>(full / 1.5 * 2.5)), 0);  // three windows: 5 to 7
      EXPECT_EQ(decoding.add_load(static_cast<int64_t>(full / 1.5 / 4)), 1);    // a quarter of one
    }
    std::vector<PassMember*> fed;
    for (VerifySession* each : decoding.next()) fed.push_back(each);
    for (const int64_t load : decoding.loads()) began[static_cast<size_t>(load)] = i;
    if (decoding.verifying() == 1) verified.push_back(i);
    run_pass(model_, fed);
    if (session.offloaded()->is_coming()) session.offloaded()->wait();
    decoding.advance(iteration);
  }
  EXPECT_EQ(began, (std::vector<int64_t>{5, 1}));
  EXPECT_EQ(verified.front(), 4);
  EXPECT_EQ(decoding.late_verifies(), 0);
}

TEST_F(Scheduled, AReloadThatFailsEndsItsRequestAlone) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const auto layers = static_cast<int64_t>(model_.config().layers);
  const auto fault = [layers](int64_t transfer) {
    if (transfer == layers) throw UserError("the host lost a page");  // the second request's first layer
  };
  const json spec = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.2}});
  const BatchRun many = run(spec, {.requests = 3}, options, slow_host(fault));
  int64_t failed = 0;
  for (const auto& session : many.sessions) {
    if (session->failure.empty()) {
      EXPECT_EQ(session->tokens.size(), static_cast<size_t>(kNewTokens));
      continue;
    }
    ++failed;
    EXPECT_NE(session->failure.find("the host lost a page"), std::string::npos) << session->failure;
  }
  EXPECT_EQ(failed, 1);
}

TEST_F(Scheduled, WhatCannotRunIsExplained) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
  const json spec = scheduled("staggered", {{"name", "snapkv"}, {"keep", 0.2}});
  EXPECT_THROW((void)run(spec, {.device_bytes = full_bytes()}, options), UserError);
  EXPECT_THROW((void)run({{"name", "full"}}, {.device_bytes = full_bytes() / 2}, options), UserError);
  EXPECT_THROW((void)run(spec, {}, options, small_host(full_bytes() / 2)), storage::TierFull);
}

}  // namespace
}  // namespace kvarena
