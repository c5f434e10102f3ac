// Stored contexts under load on a small random model: policies over real caches, beside full KV.

#include "harness/evaluate/stored_contexts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/engine/model_facts.h"
#include "harness/evaluate/stored_point.h"
#include "harness/method/registry.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace kvarena::evaluate {
namespace {

using experiment::ContextSettings;
using experiment::SampleOutcome;
using experiment::ServingSettings;
using nlohmann::json;
using results::Clock;
using testing::tiny_model;
using testing::tiny_prompt;

double agreement(const Request&, std::span<const int32_t> answer, std::span<const int32_t> full) {
  size_t same = 0;
  for (size_t i = 0; i < std::min(answer.size(), full.size()); ++i) same += answer[i] == full[i] ? 1 : 0;
  return full.empty() ? 1 : static_cast<double>(same) / static_cast<double>(full.size());
}

class StoredContexts : public ::testing::Test {
 protected:
  StoredContexts() : model_(tiny_model()), facts_(model_facts(model_)) {
    for (uint64_t i = 0; i < 5; ++i) asked_.push_back(context(i));
  }

  ContextWithQueries context(uint64_t i) {
    ContextWithQueries asked;
    asked.id = fmt::format("context {}", i);
    asked.tokens = tiny_prompt(static_cast<int64_t>(80 + 6 * i), 300 + i);
    for (uint64_t q = 0; q < 5; ++q) {
      asked.samples.emplace_back().prompt_sha256 = fmt::format("{} {}", i, q);
      asked.samples.back().id = q < 2 ? "train" : "test";
      Request request{.sample = &asked.samples.back(), .facts = facts_, .prompt = asked.tokens};
      const std::vector<int32_t> question = tiny_prompt(static_cast<int64_t>(4 + q), 700 + 10 * i + q);
      request.prompt.insert(request.prompt.end(), question.begin(), question.end());
      request.stop = {.max_new_tokens = 8};
      (q < 2 ? asked.train : asked.test).push_back(std::move(request));
    }
    return asked;
  }

  StoredContextsTask task() const {
    return {.serving = serving_,
            .contexts = settings_,
            .asked = asked_,
            .facts = facts_,
            .folder = scratch_.path(),
            .similarity = similarity_};
  }

  std::vector<SampleOutcome> evaluate(const std::vector<json>& specs) {
    std::vector<EvaluatedMethod> methods;
    for (const json& spec : specs)
      methods.push_back(
          {.method = make_method(spec, "test"), .reference = spec.at("name").get<std::string>() == "full"});
    const auto set = read_stored_set(model_, task(), methods);
    for (std::vector<storage::Form>& profile : set->profiles) {  // links alone tell forms apart: the machine is shared
      for (storage::Form& form : profile) form.ready_s = form.restore_s = 0;
    }
    return evaluate_stored_contexts(model_, task(), *set, methods);
  }

  /// The policy's outcome over so many requests that a context is profiled anew before the last half of them, and one
  /// of these is answered from what profiling led to, however little of a shared machine that gets, and however soon a
  /// fast one has answered.
  SampleOutcome evaluate_until_profiled(const json& policy) {
    while (true) {
      SampleOutcome outcome = evaluate({policy})[0];
      if (serving_.requests >= 16'000 || (profiled_by_half(outcome) && recovers(outcome))) return outcome;
      serving_.requests *= 4;
    }
  }
  /// Whether an answer of the last half is like full KV's, which none is under the forms that profiling replaces.
  static bool recovers(const SampleOutcome& outcome) {
    const auto similarity = std::ranges::find(outcome.result.series, "answer_similarity", &results::Series::name);
    if (similarity == outcome.result.series.end()) return true;
    const auto half = similarity->values.begin() + std::ssize(similarity->values) / 2;
    return std::any_of(half, similarity->values.end(), [](double value) { return value > 0.5; });
  }
  static bool profiled_by_half(const SampleOutcome& outcome) {
    const auto answered = std::ranges::find(outcome.result.series, "answered_ms", &results::Series::name);
    if (answered == outcome.result.series.end()) return true;  // failed, as the caller sees
    std::vector<double> ms(answered->values.begin(), answered->values.end());
    std::ranges::nth_element(ms, ms.begin() + std::ssize(ms) / 2);
    return std::ranges::any_of(outcome.result.events, [&](const results::Event& event) {
      return event.event == "context_profiled" && event.at_ms.value() < ms[ms.size() / 2];
    });
  }

  static double value(const SampleOutcome& outcome, const std::string& metric, Clock clock = Clock::none) {
    for (const results::MetricValue& value : outcome.result.values) {
      if (value.metric == metric && value.clock == clock) return value.value;
    }
    return NAN;
  }
  /// Links whose times count for more than what this machine measures of so small a model.
  void slow_links() {
    settings_.memory_bytes_per_s = 1e7;
    settings_.disk_bytes_per_s = 5e6;
    settings_.remote_bytes_per_s = 2.5e6;
  }
  static double hits(const SampleOutcome& outcome) {
    const double device = value(outcome, "device_hits");
    return (std::isnan(device) ? 0 : device) + value(outcome, "memory_hits") + value(outcome, "disk_hits") +
           value(outcome, "remote_hits") + value(outcome, "recomputed_contexts");
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  testing::TemporaryFolder scratch_;
  std::vector<ContextWithQueries> asked_;
  AnswerSimilarity similarity_ = agreement;
  ServingSettings serving_{.load = {0.8}, .requests = 30, .cache_mib = 64};
  ContextSettings settings_{
      .forms = {{.name = "knorm", .label = "Knorm 0.5", .settings_json = R"({"keep":0.5})"},
                {.name = "snapkv", .label = "SnapKV 0.25", .settings_json = R"({"keep":0.25})"}},
      .memory_share = 0.3,
      .disk_share = 0.5,
  };
};

TEST_F(StoredContexts, UncompressedOnesAnswerAsFullKvDoesFromWhateverTier) {
  const auto outcomes = evaluate({{{"name", "full"}}, {{"name", "lru"}}, {{"name", "lfu"}}, {{"name", "fifo"}}});
  for (const SampleOutcome& outcome : outcomes) {
    ASSERT_EQ(outcome.failure, "");
    EXPECT_EQ(results::problem_of(outcome.result), "");
    EXPECT_EQ(value(outcome, "served_score"), 1);
    EXPECT_GT(value(outcome, "mean_time_to_first_token_ms", Clock::measured), 0);
    EXPECT_TRUE(outcome.result.active);
  }
  EXPECT_TRUE(std::isnan(value(outcomes[0], "memory_hits"))) << "full KV stores nothing";
  for (size_t i = 1; i < outcomes.size(); ++i) {
    EXPECT_DOUBLE_EQ(hits(outcomes[i]), 1);
    EXPECT_EQ(value(outcomes[i], "recomputed_contexts"), 0);
    EXPECT_GT(value(outcomes[i], "memory_hits"), 0);
    EXPECT_GT(value(outcomes[i], "disk_hits") + value(outcomes[i], "remote_hits"), 0);
    EXPECT_GT(value(outcomes[i], "peak_memory_bytes"), 0);
  }
  for (size_t i = 0; i < outcomes.size(); ++i) {  // tiers have the rates that the config gives; full KV needs none
    const auto expected = i == 0 ? results::Storage::real : results::Storage::emulated;
    for (const results::MetricValue& each : outcomes[i].result.values) {
      if (each.metric.ends_with("time_to_first_token_ms") || each.metric == "cache_load_ms") {
        EXPECT_EQ(each.storage, expected) << each.metric;
      }
    }
    for (const results::Series& each : outcomes[i].result.series) {
      if (each.clock == Clock::measured) {
        EXPECT_EQ(each.storage, expected) << each.name;
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path())) << "nothing is left";
}

TEST_F(StoredContexts, ChunksCountAsHitsByTheBytesThatAreRead) {
  const json chunks = {{"name", "impress"}, {"chunk", 16}, {"window", 8}};
  json all = chunks, some = chunks;
  all["keep"] = 1;
  some["keep"] = 0.03;
  settings_.disk_share = 0.3;
  const auto outcomes = evaluate({all, some});
  for (const SampleOutcome& outcome : outcomes) {
    ASSERT_EQ(outcome.failure, "");
    EXPECT_EQ(results::problem_of(outcome.result), "");
    EXPECT_NEAR(hits(outcome), 1, 1e-9);
    EXPECT_EQ(value(outcome, "recomputed_contexts"), 0);
    EXPECT_GT(value(outcome, "cache_load_ms", Clock::measured), 0);
  }
  EXPECT_EQ(value(outcomes[0], "served_score"), 1) << "all chunks are the full cache";
  for (const char* tier : {"memory_hits", "disk_hits", "remote_hits"}) EXPECT_GT(value(outcomes[0], tier), 0) << tier;
  EXPECT_LT(value(outcomes[1], "served_score"), 1);
  EXPECT_GT(value(outcomes[1], "memory_hits"), value(outcomes[0], "memory_hits")) << "what is not read leaves first";
  double lies = 0;
  for (const auto& event : outcomes[1].result.events) lies += json::parse(event.data_json).at("keep").get<double>();
  EXPECT_NEAR(lies, static_cast<double>(asked_.size()), 0.02 * lies) << "all of each context lies somewhere";
}

TEST_F(StoredContexts, FixedCompressionHitsMoreAndAnswersWorse) {
  const auto outcomes =
      evaluate({{{"name", "lru"}}, {{"name", "lru"}, {"compress", {{"name", "snapkv"}, {"keep", 0.25}}}}});
  for (const SampleOutcome& outcome : outcomes) ASSERT_EQ(outcome.failure, "");
  EXPECT_GT(value(outcomes[1], "memory_hits"), value(outcomes[0], "memory_hits"));
  EXPECT_LT(value(outcomes[1], "served_score"), 1);
  EXPECT_GT(value(outcomes[1], "keep_in_memory"), 0.25);  // of bytes: kept entries have positions beside
  EXPECT_LT(value(outcomes[1], "keep_in_memory"), 0.26);
}

TEST_F(StoredContexts, AUtilityOfQualityAloneKeepsAnswersAndOneOfTimeKeepsMemory) {
  slow_links();
  const json patient = {{"name", "evicpress"}, {"alpha", 1e6}, {"reprofile_threshold", 2}};
  const json hasty = {{"name", "evicpress"}, {"alpha", 0}, {"reprofile_threshold", 2}};
  const auto outcomes = evaluate({patient, hasty});
  for (const SampleOutcome& outcome : outcomes) {
    ASSERT_EQ(outcome.failure, "");
    EXPECT_DOUBLE_EQ(hits(outcome), 1);
    EXPECT_EQ(value(outcome, "reprofiled_contexts"), 0);
  }
  EXPECT_GE(value(outcomes[0], "served_score"), value(outcomes[1], "served_score"));
  EXPECT_GT(value(outcomes[1], "memory_hits"), value(outcomes[0], "memory_hits"));
  const auto twice = evaluate({hasty});
  EXPECT_EQ(value(twice[0], "served_score"), value(outcomes[1], "served_score")) << "answers do not depend on time";
  EXPECT_EQ(value(twice[0], "memory_hits"), value(outcomes[1], "memory_hits"));
}

TEST_F(StoredContexts, AnswersThatStayBelowTheProfileHaveTheContextProfiledAnewAndRecover) {
  settings_.drift_answers = 2;
  settings_.popularity = 0;
  serving_.requests = 60;
  serving_.load = {0.3};
  slow_links();
  // Training questions that any form answers well say nothing about what requests ask.
  similarity_ = [](const Request& request, std::span<const int32_t> answer, std::span<const int32_t> full) {
    return request.sample->id == "train" ? 1 : agreement(request, answer, full);
  };
  const SampleOutcome anew =
      evaluate_until_profiled({{"name", "evicpress"}, {"alpha", 100}, {"reprofile_threshold", 0.05}});
  const SampleOutcome once = evaluate({{{"name", "evicpress"}, {"alpha", 100}, {"reprofile_threshold", 2}}})[0];
  ASSERT_EQ(anew.failure, "");
  ASSERT_EQ(once.failure, "");
  EXPECT_EQ(value(once, "reprofiled_contexts"), 0);
  EXPECT_GT(value(anew, "reprofiled_contexts"), 0);
  EXPECT_GT(value(anew, "served_score"), value(once, "served_score"));
  const auto& series = anew.result.series;
  const auto requests = static_cast<size_t>(serving_.requests);
  const auto similarity = std::ranges::find(series, "answer_similarity", &results::Series::name);
  ASSERT_NE(similarity, series.end());
  EXPECT_EQ(similarity->values.size(), requests);
  const auto answered = std::ranges::find(series, "answered_ms", &results::Series::name);
  ASSERT_NE(answered, series.end());
  EXPECT_EQ(answered->values.size(), requests);
  const auto whole = std::ranges::find(series, "end_to_end_ms", &results::Series::name);
  ASSERT_NE(whole, series.end());
  EXPECT_EQ(whole->values.size(), requests);
  const double last = std::ranges::max(answered->values);
  int64_t profiled = 0, stored = 0;
  for (const results::Event& event : anew.result.events) {
    const json about = json::parse(event.data_json);
    EXPECT_TRUE(about.at("context").get<std::string>().starts_with("context "));
    if (event.event == "context_profiled") {
      ++profiled;
      EXPECT_GT(about.at("began_ms"), 0);
      EXPECT_GT(event.at_ms.value(), about.at("began_ms").get<double>());
      EXPECT_LE(event.at_ms.value(), last + 1e-3);
    } else {
      ++stored;
      EXPECT_TRUE((std::set<std::string>{"uncompressed", "Knorm 0.5", "SnapKV 0.25"}.contains(about.at("form"))));
      EXPECT_TRUE((std::set<std::string>{"memory", "disk", "remote"}.contains(about.at("tier"))));
    }
  }
  EXPECT_EQ(profiled, value(anew, "reprofiled_contexts"));
  EXPECT_EQ(stored, static_cast<int64_t>(asked_.size()));
}

TEST_F(StoredContexts, ProfilingAnewWaitsForRoomBesideTheRequests) {
  settings_.drift_answers = 2;
  settings_.popularity = 0;
  slow_links();
  similarity_ = [](const Request& request, std::span<const int32_t> answer, std::span<const int32_t> full) {
    return request.sample->id == "train" ? 1 : agreement(request, answer, full);
  };
  serving_.arrivals = "clients";  // one that asks again at once: some request always runs
  serving_.load = {1};
  serving_.requests = 150;
  const json anew = {{"name", "evicpress"}, {"alpha", 1}, {"reprofile_threshold", 0.05}};
  serving_.max_running = 1;
  const SampleOutcome full = evaluate({anew})[0];
  ASSERT_EQ(full.failure, "");
  EXPECT_EQ(value(full, "reprofiled_contexts"), 0);
  EXPECT_TRUE(std::isnan(value(full, "profiling_p99_time_to_first_token_ms", Clock::measured)));
  serving_.max_running = 2;
  const SampleOutcome room = evaluate_until_profiled(anew);
  ASSERT_EQ(room.failure, "");
  EXPECT_GT(value(room, "reprofiled_contexts"), 0);
  EXPECT_GT(value(room, "profiling_p99_time_to_first_token_ms", Clock::measured), 0);
  EXPECT_GT(value(room, "before_profiling_p99_time_to_first_token_ms", Clock::measured), 0) << "drift shows in answers";
}

TEST_F(StoredContexts, PopularityShiftsHalfway) {
  settings_.popularity = 20;  // all ask about one context, the first and then the third
  settings_.popularity_shift = 2;
  const auto set = read_stored_set(model_, task(), {});
  const StoredPoint point = read_point(model_, task(), *set);
  for (size_t r = 0; r < point.asks.size(); ++r) EXPECT_EQ(point.asks[r].context, r < 15 ? 0U : 2U) << r;
}

TEST_F(StoredContexts, PointsShareWhatWasReadAndProfiledOnce) {
  int profiled = 0;
  similarity_ = [&](const Request& request, std::span<const int32_t> answer, std::span<const int32_t> full) {
    profiled += request.sample->id == "train" ? 1 : 0;
    return agreement(request, answer, full);
  };
  serving_.load = {0.4, 0.8};
  std::vector<EvaluatedMethod> methods;
  methods.push_back({.method = make_method({{"name", "evicpress"}, {"reprofile_threshold", 2}}, "test")});
  StoredContextsTask each = task();
  const auto set = read_stored_set(model_, each, methods);
  const int once = profiled;
  EXPECT_EQ(once, 5 * 2 * 2) << "contexts, questions, forms";
  for (each.point = 0; each.point < 2; ++each.point) {
    const SampleOutcome outcome = evaluate_stored_contexts(model_, each, *set, methods)[0];
    ASSERT_EQ(outcome.failure, "");
    EXPECT_DOUBLE_EQ(hits(outcome), 1);
  }
  EXPECT_EQ(profiled, once);
}

TEST_F(StoredContexts, RatesOfZeroAreThoseOfTheMachine) {
  settings_.memory_bytes_per_s = settings_.disk_bytes_per_s = settings_.remote_bytes_per_s = 0;
  const auto outcomes = evaluate({{{"name", "lru"}}, {{"name", "evicpress"}, {"reprofile_threshold", 2}}});
  for (const SampleOutcome& outcome : outcomes) {
    ASSERT_EQ(outcome.failure, "");
    EXPECT_DOUBLE_EQ(hits(outcome), 1);
    for (const results::MetricValue& each : outcome.result.values) {
      EXPECT_EQ(each.storage, results::Storage::real) << each.metric;
    }
  }
  EXPECT_EQ(value(outcomes[0], "served_score"), 1);
  settings_.remote_bytes_per_s = 1e9;
  const SampleOutcome slow = evaluate({{{"name", "lru"}}})[0];
  const auto& values = slow.result.values;
  const auto load = std::ranges::find(values, "cache_load_ms", &results::MetricValue::metric);
  ASSERT_NE(load, values.end());
  EXPECT_EQ(load->storage, results::Storage::emulated) << "one link that is, is enough";
}

TEST_F(StoredContexts, WhatFormsAreMadeOfIsCounted) {
  settings_.memory_bytes = 1 << 30;
  const auto outcomes = evaluate({{{"name", "lru"}}, {{"name", "evicpress"}, {"reprofile_threshold", 2}}});
  EXPECT_EQ(value(outcomes[1], "original_bytes"), value(outcomes[0], "peak_memory_bytes")) << "all, uncompressed";
  EXPECT_TRUE(std::isnan(value(outcomes[0], "original_bytes"))) << "no other form will be asked for";
}

TEST_F(StoredContexts, ThoseThatLieReadyOnTheDeviceComeAtOnce) {
  slow_links();
  const json lru = {{"name", "lru"}}, chunks = {{"name", "impress"}, {"keep", 1}, {"chunk", 16}, {"window", 8}};
  const SampleOutcome without = evaluate({lru})[0];
  for (const char* metric : {"device_hits", "peak_device_bytes", "keep_on_device"})
    EXPECT_TRUE(std::isnan(value(without, metric))) << metric;
  settings_.device_share = 0.5;  // of bytes at rest: for some of them
  const auto some =
      evaluate({lru, {{"name", "evicpress"}, {"alpha", 1e6}, {"reprofile_threshold", 2}}, {{"name", "lfu"}}, chunks});
  settings_.device_bytes = 1 << 30;
  const auto all = evaluate({lru, {{"name", "lru"}, {"compress", {{"name", "snapkv"}, {"keep", 0.25}}}}, chunks});
  for (const auto* outcomes : {&some, &all}) {
    for (const SampleOutcome& outcome : *outcomes) {
      ASSERT_EQ(outcome.failure, "");
      EXPECT_EQ(results::problem_of(outcome.result), "");
      EXPECT_NEAR(hits(outcome), 1, 1e-9);
      EXPECT_EQ(value(outcome, "recomputed_contexts"), 0);
      EXPECT_GT(value(outcome, "device_hits"), 0);
      EXPECT_GT(value(outcome, "peak_device_bytes"), 0);
      EXPECT_GT(value(outcome, "keep_on_device"), 0);
      if (&outcome != &(*outcomes)[1]) {
        EXPECT_EQ(value(outcome, "served_score"), 1) << "uncompressed";
      }
    }
  }
  const double room = 0.5 * static_cast<double>(read_stored_set(model_, task(), {})->originals->bytes());
  for (const SampleOutcome& outcome : some) {
    EXPECT_LT(value(outcome, "device_hits"), 1);
    EXPECT_LE(value(outcome, "peak_device_bytes"), room);
  }
  for (const SampleOutcome& outcome : all) {
    EXPECT_EQ(value(outcome, "device_hits"), 1);
    for (const results::Event& event : outcome.result.events)
      EXPECT_EQ(json::parse(event.data_json).at("tier"), "device");
  }
  EXPECT_EQ(value(all[0], "cache_restore_ms", Clock::measured), 0) << "it is there as attention reads it";
  EXPECT_GT(value(all[2], "cache_restore_ms", Clock::measured), 0) << "chunks are put together";
  EXPECT_LT(value(all[1], "keep_on_device"), value(all[0], "keep_on_device") / 3);
}

TEST_F(StoredContexts, CachesOnTheirWayAreHeldByTheirRequests) {
  settings_.memory_bytes = settings_.disk_bytes = 0;
  settings_.remote_bytes_per_s = 1e6;  // one after the other, each longer than an answer takes
  serving_.load = {1000};
  serving_.requests = 12;
  const SampleOutcome outcome = evaluate({{{"name", "lru"}}})[0];
  ASSERT_EQ(outcome.failure, "");
  EXPECT_EQ(value(outcome, "remote_hits"), 1);
  const auto set = read_stored_set(model_, task(), {});
  const double mean = static_cast<double>(set->originals->bytes()) / static_cast<double>(asked_.size());
  EXPECT_GT(value(outcome, "peak_cache_bytes", Clock::measured), 8 * mean);
}

TEST_F(StoredContexts, RequestsOfThePastLeaveContextsAsTheyUsedThem) {
  settings_.popularity = 20;  // all ask about the first context
  serving_.requests = 1;
  const json lru = {{"name", "lru"}};
  EXPECT_EQ(value(evaluate({lru})[0], "memory_hits"), 0) << "the first context came first and was pushed down";
  settings_.past_requests = 10;
  EXPECT_EQ(value(evaluate({lru})[0], "memory_hits"), 1);
  // A policy that counts uses keeps it in memory too, whatever it would cost another context.
  settings_.forms.clear();
  EXPECT_EQ(value(evaluate({{{"name", "evicpress"}, {"alpha", 0}}})[0], "memory_hits"), 1);
}

TEST_F(StoredContexts, RoomInBytesCountsInsteadOfTheShare) {
  const json lru = {{"name", "lru"}};
  settings_.memory_bytes = 0;
  const SampleOutcome none = evaluate({lru})[0];
  EXPECT_EQ(value(none, "memory_hits"), 0);
  EXPECT_EQ(value(none, "peak_memory_bytes"), 0);
  settings_.memory_bytes = 1 << 30;
  settings_.memory_share = 0;
  EXPECT_EQ(value(evaluate({lru})[0], "memory_hits"), 1);
  settings_.memory_bytes = settings_.disk_bytes = 0;
  EXPECT_EQ(value(evaluate({lru})[0], "remote_hits"), 1);
}

TEST_F(StoredContexts, WhatPlacesNothingIsRefusedAndTheOthersGoOn) {
  const auto outcomes = evaluate(
      {{{"name", "snapkv"}, {"keep", 0.5}}, {{"name", "lru"}, {"compress", {{"name", "gear"}}}}, {{"name", "fifo"}}});
  EXPECT_NE(outcomes[0].failure.find("compress"), std::string::npos) << outcomes[0].failure;
  EXPECT_NE(outcomes[1].failure.find("cannot be stored"), std::string::npos) << outcomes[1].failure;
  EXPECT_EQ(outcomes[2].failure, "");
}

}  // namespace
}  // namespace kvarena::evaluate
