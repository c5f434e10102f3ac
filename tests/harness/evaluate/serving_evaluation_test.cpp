// A serving point on a small random model: what every clock must say, and loads below, near and above capacity.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/core/error.h"
#include "harness/engine/method_cost.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/request_bytes.h"
#include "harness/evaluate/serving.h"
#include "harness/evaluate/session_load.h"
#include "harness/evaluate/stored_start.h"
#include "harness/method/registry.h"
#include "harness/storage/hierarchy.h"
#include "harness/storage/link_spec.h"
#include "tests/support/tiny_model.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;
using experiment::ServingSettings;
using nlohmann::json;
using results::Clock;
using testing::tiny_model;
using testing::tiny_prompt;

class ServingEvaluation : public ::testing::Test {
 protected:
  ServingEvaluation() : model_(tiny_model()), facts_(model_facts(model_)) {}

  /// `count` requests of one point; no text, so that nothing is scored.
  std::vector<Request> requests(size_t count, int64_t new_tokens = 12) {
    samples_.resize(count);
    std::vector<Request> list;
    for (size_t i = 0; i < count; ++i) {
      samples_[i].prompt_sha256 = fmt::format("{}", i);
      list.push_back({.sample = &samples_[i],
                      .facts = facts_,
                      .prompt = tiny_prompt(80 + static_cast<int64_t>(i % 5), i),
                      .stop = {.max_new_tokens = new_tokens}});
    }
    return list;
  }

  static EvaluatedMethod evaluated(const json& spec) {
    return {.method = make_method(spec, "test"), .reference = spec.value("name", "") == "full"};
  }

  std::vector<SampleOutcome> evaluate(const ServingSettings& settings, const std::vector<Request>& list,
                                      const json& spec, size_t point = 0) {
    const EvaluatedMethod method = evaluated(spec);
    return evaluate_serving(model_, {.settings = settings, .requests = list, .point = point, .machine = machine()},
                            std::span(&method, 1));
  }

  static double value(const SampleOutcome& outcome, const std::string& metric, Clock clock) {
    for (const results::MetricValue& value : outcome.result.values) {
      if (value.metric == metric && value.clock == clock) return value.value;
    }
    return NAN;
  }

  /// 1e9 bytes and operations a second, ten microseconds a kernel.
  static cost_model::Hardware machine() {
    cost_model::Hardware machine;
    machine.memory_gb_per_s.value = 1;
    machine.compute_tflop_per_s.value = 1e-3;
    machine.efficiency.memory = machine.efficiency.compute = 1;
    machine.efficiency.kernel_us = 10;
    return machine;
  }
  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  std::vector<datasets::Sample> samples_;
};

TEST_F(ServingEvaluation, BothClocksSayEverythingAndOrderTheirPercentiles) {
  const auto outcomes = evaluate({.load = {0.8}, .cache_mib = 64}, requests(12), {{"name", "snapkv"}, {"keep", 0.5}});
  ASSERT_EQ(outcomes.size(), 1U);
  ASSERT_EQ(outcomes[0].failure, "");
  EXPECT_EQ(results::problem_of(outcomes[0].result), "");
  EXPECT_TRUE(outcomes[0].result.active);
  EXPECT_EQ(outcomes[0].result.output_tokens, 12 * 12);
  for (const Clock clock : {Clock::measured, Clock::modelled}) {
    for (const char* name : {"time_to_first_token_ms", "queueing_ms", "inter_token_latency_ms", "end_to_end_ms"}) {
      const double p50 = value(outcomes[0], std::string("p50_") + name, clock);
      const double p90 = value(outcomes[0], std::string("p90_") + name, clock);
      EXPECT_LE(p50, p90) << name;
      EXPECT_LE(p90, value(outcomes[0], std::string("p99_") + name, clock)) << name;
      EXPECT_TRUE(std::isfinite(value(outcomes[0], std::string("mean_") + name, clock))) << name;
    }
    EXPECT_GT(value(outcomes[0], "offered_requests_per_s", clock), 0);
    EXPECT_GT(value(outcomes[0], "served_tokens_per_s", clock), 0);
    EXPECT_LE(value(outcomes[0], "goodput_latency_per_s", clock),
              value(outcomes[0], "served_requests_per_s", clock) + 1e-9);
  }
  EXPECT_EQ(value(outcomes[0], "refused_requests", Clock::none), 0);
}

TEST_F(ServingEvaluation, AWholeAnswerTakesItsFirstTokenAndItsGaps) {
  constexpr int64_t kNewTokens = 12;
  const auto outcomes = evaluate({.load = {0.8}, .cache_mib = 64}, requests(6, kNewTokens), {{"name", "full"}});
  ASSERT_EQ(outcomes[0].failure, "");
  for (const Clock clock : {Clock::measured, Clock::modelled}) {
    const double whole = value(outcomes[0], "mean_end_to_end_ms", clock);
    const double parts = value(outcomes[0], "mean_time_to_first_token_ms", clock) +
                         (kNewTokens - 1) * value(outcomes[0], "mean_inter_token_latency_ms", clock);
    EXPECT_NEAR(whole, parts, 1e-9 * whole);
    const auto series = std::ranges::find_if(outcomes[0].result.series, [&](const results::Series& each) {
      return each.name == "end_to_end_ms" && each.clock == clock;
    });
    ASSERT_NE(series, outcomes[0].result.series.end());
    ASSERT_EQ(series->values.size(), 6U);
    EXPECT_NEAR(std::accumulate(series->values.begin(), series->values.end(), 0.0) / 6, whole, 1e-5 * whole);
  }
}

TEST_F(ServingEvaluation, WhatCameOverAnEmulatedLinkSaysSo) {
  const json scheduled = {{"name", "vericache"},
                          {"draft_length", 4},
                          {"schedule", "staggered"},
                          {"drafter", {{"name", "snapkv"}, {"keep", 0.1}}}};
  const json full = {{"name", "full"}};
  for (const bool emulated : {false, true}) {
    auto machine = storage::usual_tiers();
    if (emulated) machine[0].link = storage::link_named("pcie3_x16", "test");
    facts_ = model_facts(model_, {}, std::make_shared<storage::Hierarchy>(machine));
    for (const json& spec : {scheduled, full}) {
      const auto outcomes = evaluate({.load = {0.8}, .cache_mib = 64}, requests(6), spec);
      ASSERT_EQ(outcomes[0].failure, "");
      const auto expected = emulated && spec == scheduled ? results::Storage::emulated : results::Storage::real;
      int64_t times = 0;
      for (const results::MetricValue& value : outcomes[0].result.values) {
        if (value.clock != Clock::measured || value.metric == "peak_cache_bytes") continue;
        EXPECT_EQ(value.storage, expected) << value.metric;
        ++times;
      }
      EXPECT_GT(times, 10);
    }
  }
}

TEST_F(ServingEvaluation, StoredPromptsComeOverTheLinkOfReloadsAndAreAnsweredAsFullKvDoes) {
  constexpr double kRate = 20e6;
  const auto tiers = std::make_shared<storage::Hierarchy>(
      std::vector<storage::TierSettings>{{.tier = Tier::host, .link = {.name = "slow", .bytes_per_s = kRate}}});
  facts_ = model_facts(model_, {}, tiers);
  const std::vector<Request> list = requests(8);
  const auto full = make_method({{"name", "full"}}, "test");
  for (const char* schedule : {"staggered", "lock_step", "sequential"}) {
    SCOPED_TRACE(schedule);
    const auto scheduled = make_method({{"name", "vericache"},
                                        {"draft_length", 4},
                                        {"schedule", schedule},
                                        {"drafter", {{"name", "knorm"}, {"keep", 0.25}}}},
                                       "test");
    std::vector<ServedRequest> served;
    std::vector<double> times;
    for (size_t i = 0; i < list.size(); ++i) {
      const Method& method = i % 4 == 3 ? *full : *scheduled;  // some do not speculate
      served.push_back({.prompt = list[i].prompt, .method = &method, .options = session_options(list[i])});
      store_start(model_, list[i], served.back());
      times.push_back(0.004 * static_cast<double>(i));
    }
    EXPECT_LT(served[4].begin_bytes, served[3].begin_bytes / 2) << "what is drafted on, beside all of a cache";
    const int64_t one = full_cache_bytes(model_, 100);
    ServingEngine engine(model_, served, facts_);
    int64_t bytes = -tiers->load(Tier::host).totals().bytes;
    const serving::ServingRun run =
        serve(serving::Load::at_times(times), engine, {.cache_bytes = 40 * one, .pass_tokens = 100, .max_running = 6});
    bytes += tiers->load(Tier::host).totals().bytes;
    for (size_t i = 0; i < list.size(); ++i) {
      ASSERT_EQ(run.requests[i].outcome, serving::Outcome::answered) << i << ": " << run.requests[i].reason;
      const auto& answer = engine.answer(static_cast<int64_t>(i));
      const auto alone = start_session(model_, prefill(model_, list[i].prompt, {}, kPrefillChunk, facts_), *full,
                                       session_options(list[i]));
      Session* const session = alone.get();
      run_together(model_, {&session, 1});
      EXPECT_EQ(answer->tokens, alone->tokens) << "request " << i;
      const double first = run.requests[i].token_s.front() - run.requests[i].arrival_s;
      EXPECT_GE(first, static_cast<double>(served[i].begin_bytes) / kRate) << "request " << i;
      bytes -= served[i].begin_bytes + answer->activity.traffic.loaded_bytes;
    }
    EXPECT_EQ(bytes, 0) << "loads and reloads, nothing else";
  }
}

/// Its reservation until its first token has room for the full cache that its first verification brings.
TEST_F(ServingEvaluation, AStoredPromptNeedsNoMoreMemoryThanItsStartDoes) {
  facts_ = model_facts(model_, {}, std::make_shared<storage::Hierarchy>(storage::usual_tiers()));
  const std::vector<Request> list = requests(3);
  for (const char* schedule : {"staggered", "lock_step", "sequential"}) {
    SCOPED_TRACE(schedule);
    const auto scheduled = make_method(
        {{"name", "vericache"}, {"schedule", schedule}, {"drafter", {{"name", "knorm"}, {"keep", 0.25}}}}, "test");
    std::vector<ServedRequest> served;
    for (const Request& request : list) {
      served.push_back({.prompt = request.prompt, .method = scheduled.get(), .options = session_options(request)});
      store_start(model_, request, served.back());
    }
    ServingEngine engine(model_, served, facts_);
    int64_t most = 0;
    for (int64_t i = 0; i < 3; ++i) most = std::max(most, engine.needs(i).bytes);
    const serving::BatchSettings settings{.cache_bytes = most, .pass_tokens = 100};
    const serving::ServingRun run = serve(serving::Load::at_times({0, 0, 0}), engine, settings);
    for (const auto& request : run.requests) EXPECT_EQ(request.outcome, serving::Outcome::answered) << request.reason;
    EXPECT_LE(run.peak_held_bytes, settings.cache_bytes);
    EXPECT_EQ(run.overrun_bytes, 0);
  }
}

TEST_F(ServingEvaluation, BytesOfAStoredPromptCountBesideTheCacheThatIsMadeOfThem) {
  facts_ = model_facts(model_, {}, std::make_shared<storage::Hierarchy>(storage::usual_tiers()));
  Request request = requests(1).front();
  request.prompt = tiny_prompt(400);
  const auto full = make_method({{"name", "full"}}, "test");
  const auto stored = [&] {
    ServedRequest served{.prompt = request.prompt, .method = full.get(), .options = session_options(request)};
    store_start(model_, request, served);
    return served;
  };
  const ServedRequest one = stored();
  EXPECT_EQ(one.coming_bytes(), one.begin_bytes);
  const KvCache cache = one.begin().get().cache();
  EXPECT_GE(one.coming_bytes(), one.begin_bytes + cache.bytes());

  ServingEngine engine(model_, {stored()}, facts_);
  const serving::ServingRun run = serve(serving::Load::at_times({0}), engine, {.pass_tokens = 100});
  ASSERT_EQ(run.requests[0].outcome, serving::Outcome::answered) << run.requests[0].reason;
  EXPECT_GE(engine.answer(0)->peak_bytes, one.begin_bytes + cache.bytes());
  EXPECT_LE(engine.answer(0)->peak_bytes, engine.needs(0).bytes) << "they were reserved";
  EXPECT_EQ(run.overrun_bytes, 0);
}

TEST_F(ServingEvaluation, ALoadThatFailsEndsItsRequestAlone) {
  const auto fail_first = [](int64_t transfer) {
    if (transfer == 0) throw UserError("the cable is out");
  };
  facts_ = model_facts(model_, {},
                       std::make_shared<storage::Hierarchy>(std::vector<storage::TierSettings>{
                           {.tier = Tier::host, .link = {.name = "slow", .bytes_per_s = 20e6}, .fault = fail_first}}));
  const std::vector<Request> list = requests(3);
  const auto scheduled = make_method(
      {{"name", "vericache"}, {"schedule", "staggered"}, {"drafter", {{"name", "snapkv"}, {"keep", 0.2}}}}, "test");
  std::vector<ServedRequest> served;
  for (const Request& request : list) {
    served.push_back({.prompt = request.prompt, .method = scheduled.get(), .options = session_options(request)});
    store_start(model_, request, served.back());
  }
  ServingEngine engine(model_, served, facts_);
  const serving::ServingRun run = serve(serving::Load::at_times({0, 0, 0}), engine, {.pass_tokens = 100});
  EXPECT_EQ(run.requests[0].outcome, serving::Outcome::failed);
  EXPECT_EQ(run.requests[0].reason, "the cable is out");
  EXPECT_EQ(run.requests[1].outcome, serving::Outcome::answered);
  EXPECT_EQ(run.requests[2].outcome, serving::Outcome::answered);
}

TEST_F(ServingEvaluation, StoredPromptsAreOfFullKvAndScheduledVerifiers) {
  auto machine = storage::usual_tiers();
  machine[0].link = storage::link_named("pcie3_x16", "test");
  facts_ = model_facts(model_, {}, std::make_shared<storage::Hierarchy>(machine));
  const ServingSettings settings{.load = {0.8}, .cache_mib = 64, .stored_prompts = true};
  const json drafter = {{"name", "snapkv"}, {"keep", 0.1}};
  for (const json& spec :
       {json{{"name", "full"}}, json{{"name", "vericache"}, {"schedule", "staggered"}, {"drafter", drafter}}}) {
    const auto outcomes = evaluate(settings, requests(6), spec);
    ASSERT_EQ(outcomes[0].failure, "");
    EXPECT_EQ(outcomes[0].result.output_tokens, 6 * 12);
    EXPECT_TRUE(std::isnan(value(outcomes[0], "mean_end_to_end_ms", Clock::modelled)));
    const auto first =
        std::ranges::find(outcomes[0].result.values, "mean_time_to_first_token_ms", &results::MetricValue::metric);
    ASSERT_NE(first, outcomes[0].result.values.end());
    EXPECT_EQ(first->storage, results::Storage::emulated);
  }
  const auto refused = [&](const json& spec) { return evaluate(settings, requests(6), spec)[0].failure; };
  EXPECT_NE(refused(drafter).find("expected full KV, or a verifier with a \"schedule\""), std::string::npos);
  EXPECT_NE(refused({{"name", "vericache"}, {"drafter", drafter}}).find("found another method"), std::string::npos);
  EXPECT_NE(refused({{"name", "vericache"}, {"schedule", "staggered"}, {"drafter", {{"name", "gear"}}}}), "");
}

TEST_F(ServingEvaluation, TheModelledClockRepeatsItself) {
  const std::vector<Request> list = requests(8);
  const ServingSettings settings{.load = {1.1}, .cache_mib = 64};
  const auto modelled = [&] {
    std::map<std::string, double> values;
    const std::vector<SampleOutcome> outcomes = evaluate(settings, list, {{"name", "kivi"}});
    for (const results::MetricValue& value : outcomes[0].result.values) {
      if (value.clock != Clock::measured) values[value.metric] = value.value;
    }
    return values;
  };
  EXPECT_EQ(modelled(), modelled());
}

/// `kvarena estimate --method` asks measure_costs() and scheme_at(), too.
TEST_F(ServingEvaluation, ASelectingMethodsStepsTakeWhatAnEstimateSaysOfThem) {
  const std::vector<Request> one = requests(1);
  const json quest{{"name", "quest"}, {"tokens", 16}};
  const auto outcomes = evaluate({.arrivals = "clients", .load = {1}, .cache_mib = 64}, one, quest);
  ASSERT_EQ(outcomes[0].failure, "");

  const auto method = make_method(quest, "test");
  const auto tokens = static_cast<int64_t>(one[0].prompt.size());
  const int64_t answer = outcomes[0].result.output_tokens;
  const double entry_bytes = static_cast<double>(full_cache_bytes(model_, tokens)) / static_cast<double>(tokens);
  const cost_model::CacheScheme scheme =
      scheme_at(measure_costs(model_, *method, one[0].prompt, facts_, "test"), entry_bytes, tokens + answer);
  ASSERT_TRUE(scheme.attended.has_value());
  EXPECT_LT(*scheme.attended, tokens);
  const auto weights = static_cast<double>(model_.weight_bytes());
  const auto numbers = static_cast<double>(model_.weight_numbers());
  const auto& config = model_.config();
  double seconds = 0;
  for (int64_t step = 1; step < answer; ++step) {
    const cost_model::RequestBytes cache =
        cost_model::request_bytes(entry_bytes, scheme, static_cast<double>(tokens + step));
    seconds += cost_model::timed(
                   machine(),
                   {.weight_bytes = weights,
                    .cache_bytes = cache.read,
                    .flops = 2 * numbers +
                             4 * cache.attended * static_cast<double>(config.layers * config.q_heads * config.head_dim),
                    .kernels = cost_model::kernels_of(config.layers, config.qk_norm)})
                   .seconds;
  }
  const double modelled = value(outcomes[0], "mean_inter_token_latency_ms", Clock::modelled);
  EXPECT_NEAR(modelled, 1e3 * seconds / static_cast<double>(answer - 1), 1e-9 * modelled);
  const auto full = evaluate({.arrivals = "clients", .load = {1}, .cache_mib = 64}, one, {{"name", "full"}});
  EXPECT_LT(modelled, value(full[0], "mean_inter_token_latency_ms", Clock::modelled));
}

TEST_F(ServingEvaluation, AboveCapacityTheQueueGrows) {
  const std::vector<Request> list = requests(60, 8);
  const ServingSettings settings{.load = {0.5, 0.9, 1.2}, .cache_mib = 2, .max_running = 8};
  std::vector<double> queueing;
  for (size_t point = 0; point < 3; ++point) {
    const auto outcomes = evaluate(settings, list, {{"name", "full"}}, point);
    ASSERT_EQ(outcomes[0].failure, "");
    queueing.push_back(value(outcomes[0], "mean_queueing_ms", Clock::modelled));
    fmt::print("{}x: modelled queueing {:.1f} ms, TTFT {:.1f} ms; measured {:.1f} and {:.1f} ms\n",
               settings.load[point], queueing.back(),
               value(outcomes[0], "mean_time_to_first_token_ms", Clock::modelled),
               value(outcomes[0], "mean_queueing_ms", Clock::measured),
               value(outcomes[0], "mean_time_to_first_token_ms", Clock::measured));
  }
  EXPECT_LT(queueing[0], queueing[1]);
  EXPECT_LT(queueing[1], queueing[2]);
}

TEST_F(ServingEvaluation, ClientsWaitForTheirAnswers) {
  const auto outcomes = evaluate({.arrivals = "clients", .load = {2}}, requests(6), {{"name", "full"}});
  ASSERT_EQ(outcomes[0].failure, "");
  EXPECT_TRUE(std::isnan(value(outcomes[0], "offered_requests_per_s", Clock::measured)));
  EXPECT_LT(value(outcomes[0], "p99_queueing_ms", Clock::modelled), 1e-6);  // never more requests than clients
}

TEST_F(ServingEvaluation, SessionsBeginAtTheirTimesAndGoOnAfterTheirAnswers) {
  std::vector<Request> list = requests(6);
  for (size_t i = 0; i < 6; ++i) {
    samples_[i].recorded = {.session = i % 2 == 0 ? "a" : "b", .think_s = 0.01 * static_cast<double>(i), .at_s = 3 + i};
  }
  const ServingSettings settings{.arrivals = "sessions", .think = 0.5, .load = {0.8}};
  const auto sessions = recorded_sessions({.settings = settings, .requests = 6, .asked = list}, 2);
  ASSERT_EQ(sessions.size(), 2U);
  EXPECT_EQ(sessions[0].start_s, 0);
  EXPECT_DOUBLE_EQ(sessions[1].start_s, 1.5);  // two of six requests begin one: two thirds of a session a second
  std::vector<std::pair<int64_t, double>> turns;
  for (const serving::Turn& turn : sessions[1].turns) turns.emplace_back(turn.request, turn.think_s);
  EXPECT_EQ(turns, (std::vector<std::pair<int64_t, double>>{{1, 0}, {3, 0.015}, {5, 0.025}}));

  const auto outcomes = evaluate(settings, list, {{"name", "full"}});
  ASSERT_EQ(outcomes[0].failure, "");
  const json activity = json::parse(outcomes[0].result.activity_json);
  EXPECT_EQ(activity["answered_by_turn"], json({2, 2, 2}));
  EXPECT_EQ(activity["time_to_first_token_ms_by_turn"].size(), 3U);
  for (const json& waited : activity["time_to_first_token_ms_by_turn"]) EXPECT_GT(waited.get<double>(), 0);

  for (datasets::Sample& sample : samples_) sample.recorded->at_s.reset();
  const ServingPoint untimed{.settings = settings, .requests = 6, .asked = list};
  EXPECT_EQ(recorded_sessions(untimed, 2)[0].start_s, 0);
  EXPECT_GT(recorded_sessions(untimed, 2)[1].start_s, 0);
  samples_[4].id = "four";
  samples_[4].recorded.reset();
  try {
    (void)evaluate(settings, list, {{"name", "full"}});
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("sample four, which is no turn"), std::string::npos) << error.what();
  }
}

TEST_F(ServingEvaluation, TracesAreReadOnAndStretchedToTheLoad) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("kvarena-trace-{}.csv", ::getpid());
  {
    std::ofstream out(file);
    out << "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    for (int second = 0; second < 8; ++second) out << fmt::format("2023-11-16 18:17:0{}.0000000,10,10\n", second);
  }
  const ServingSettings settings{.arrivals = "trace", .trace = file.string(), .load = {0.5, 1}};
  const auto outcomes = evaluate(settings, requests(4), {{"name", "full"}}, 1);
  EXPECT_EQ(outcomes[0].failure, "");
  EXPECT_THROW((void)evaluate(settings, requests(5), {{"name", "full"}}, 1), UserError);  // needs ten
  std::filesystem::remove(file);
}

TEST_F(ServingEvaluation, AVerifierHasNoModelledClock) {
  const auto outcomes = evaluate({.load = {0.8}, .cache_mib = 64}, requests(4), {{"name", "ngram"}});
  ASSERT_EQ(outcomes[0].failure, "");
  EXPECT_TRUE(std::isnan(value(outcomes[0], "served_tokens_per_s", Clock::modelled)));
  EXPECT_GT(value(outcomes[0], "served_tokens_per_s", Clock::measured), 0);
}

TEST_F(ServingEvaluation, ABudgetThatHoldsNoRequestIsToldWithItsReason) {
  try {
    (void)evaluate({.load = {1}, .cache_mib = 0.01}, requests(3), {{"name", "full"}});
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("raise cache_bytes"), std::string::npos) << error.what();
  }
}

TEST(ServingMachine, IsADescriptionAtTheSharesThatProgramsReach) {
  const std::filesystem::path folder = std::filesystem::path(KVARENA_SOURCE_DIR) / "configs" / "hardware";
  EXPECT_FALSE(serving_machine("", folder).has_value());
  const auto machine = serving_machine("h100-80gb", folder);
  ASSERT_TRUE(machine.has_value());
  EXPECT_NEAR(machine->efficiency.memory * machine->memory_bytes_per_second(), 0.7 * 3350e9, 1e6);
  EXPECT_NEAR(machine->efficiency.compute * machine->flop_per_second(), 0.6 * 989.4e12, 1e9);
  EXPECT_THROW((void)serving_machine("h100-80g", folder), UserError);
}

}  // namespace
}  // namespace kvarena::evaluate
