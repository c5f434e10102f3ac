// Requests whose prompts' caches lie in a store: what is said of each method, and that the words hold.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/evaluate/remote_prefix.h"
#include "harness/method/registry.h"
#include "harness/storage/remote/store_server.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;
using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr int64_t kRequests = 4;

class RemotePrefixEvaluation : public ::testing::Test {
 protected:
  RemotePrefixEvaluation() : model_(tiny_model()) {
    testing::write_tiny_model(folder_.path(), 1);
    tokenizer_ = load_tokenizer(folder_.path() / "tokenizer.json");
  }

  SampleOutcome evaluate(const json& spec, const std::vector<int64_t>& lengths = {300}) {
    std::vector<Request> requests;
    for (const int64_t length : lengths) {
      requests.push_back({.sample = &sample_,
                          .tokenizer = tokenizer_.get(),
                          .facts = model_facts(model_),
                          .prompt = tiny_prompt(length),
                          .stop = {.max_new_tokens = 20}});
    }
    const std::string name = spec["name"];
    const EvaluatedMethod evaluated{.method = make_method(spec, "test"),
                                    .reference = find_method(name)->family == Family::reference};
    const experiment::TimingSettings timing{.repeats = 1, .warmup = 0, .batch = kRequests};
    return evaluate_remote_prefix(model_, requests, evaluated, {.timing = timing, .links = links_});
  }

  static json vericache(const std::string& path, const json& drafter = {{"name", "snapkv"}, {"keep", 0.25}}) {
    return {{"name", "vericache"}, {"draft_length", 4}, {"drafter", drafter}, {"path", path}};
  }

  static double value(const SampleOutcome& outcome, const std::string& metric) {
    for (const results::MetricValue& value : outcome.result.values) {
      if (value.metric == metric) return value.value;
    }
    return NAN;
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Transformer model_;
  datasets::Sample sample_;
  experiment::RemotePrefixSettings links_{
      .local_bytes_per_s = 4e9, .remote_bytes_per_s = 100e6, .local_devices = 1, .remote_devices = 2};
};

TEST_F(RemotePrefixEvaluation, SaysWhatEachMethodWaitedForAndMoved) {
  links_.local_decodes = false;
  const SampleOutcome full = evaluate({{"name", "full"}});
  const double whole = value(full, "slow_link_bytes");
  EXPECT_GT(whole, 0);
  EXPECT_EQ(value(full, "fast_link_bytes"), 0);
  EXPECT_EQ(value(full, "exact_match_full"), 1);
  EXPECT_TRUE(std::isnan(value(full, "first_draft_ms")));
  EXPECT_EQ(json::parse(full.result.activity_json)["requests_by_path"], json({{"remote", kRequests}}));

  const SampleOutcome lossy = evaluate({{"name", "snapkv"}, {"keep", 0.25}});
  const double compressed = value(lossy, "slow_link_bytes");
  EXPECT_LT(compressed, whole / 2);
  EXPECT_TRUE(std::isnan(value(lossy, "planned_tokens_per_s")));

  const SampleOutcome cached = evaluate(vericache("verify_only_cached"));
  EXPECT_EQ(value(cached, "slow_link_bytes"), compressed);
  EXPECT_EQ(value(cached, "fast_link_bytes"), whole);
  EXPECT_EQ(value(cached, "exact_match_full"), 1);
  EXPECT_GE(value(cached, "acceptance_rate"), 0);
  EXPECT_LT(value(cached, "first_draft_ms"), value(cached, "time_to_first_token_ms"));
  EXPECT_LT(value(cached, "time_to_first_token_ms"), value(cached, "end_to_end_ms"));
  EXPECT_GE(value(cached, "transfer_hidden"), 0);
  EXPECT_LE(value(cached, "transfer_hidden"), 1);

  const SampleOutcome anew = evaluate({{"name", "full_recompute"}});
  EXPECT_EQ(value(anew, "slow_link_bytes") + value(anew, "fast_link_bytes"), 0);
  EXPECT_EQ(value(anew, "exact_match_full"), 1);
}

TEST_F(RemotePrefixEvaluation, TheMixIsOfAllowedPathsAndWhatItExpectsIsModelled) {
  for (const bool local : {true, false}) {
    links_.local_decodes = local;
    const SampleOutcome best = evaluate(vericache("best"));
    EXPECT_EQ(value(best, "exact_match_full"), 1);
    const json paths = json::parse(best.result.activity_json)["requests_by_path"];
    int64_t served = 0;
    for (const auto& [path, count] : paths.items()) served += count.get<int64_t>();
    EXPECT_EQ(served, kRequests);
    if (!local) {
      EXPECT_FALSE(paths.contains("local"));
    }
    for (const results::MetricValue& each : best.result.values) {
      const bool planned = each.metric == "planned_tokens_per_s";
      EXPECT_EQ(each.clock, planned ? results::Clock::modelled : results::Clock::measured) << each.metric;
      EXPECT_EQ(each.storage, results::Storage::emulated) << each.metric;
    }
  }
}

TEST_F(RemotePrefixEvaluation, RequestsAskForDistinctPromptsInTurn) {
  const json full = {{"name", "full"}};
  links_.local_decodes = false;
  const double shorter = value(evaluate(full, {100}), "slow_link_bytes");
  const double longer = value(evaluate(full, {300}), "slow_link_bytes");
  const SampleOutcome both = evaluate(full, {300, 100});
  EXPECT_EQ(value(both, "slow_link_bytes"), (shorter + longer) / 2);
  EXPECT_EQ(value(both, "exact_match_full"), 1) << "each beside its own prompt's answer";
  EXPECT_EQ(value(evaluate(vericache("verify_streaming_cached"), {300, 100}), "exact_match_full"), 1);
}

TEST_F(RemotePrefixEvaluation, OverASocketTheBytesAreTheSameAndAreMarkedWhereARateHoldsThem) {
  const SampleOutcome here = evaluate(vericache("verify_only_cached"));
  const storage::StoreServer server("127.0.0.1:0", int64_t{1} << 26);
  links_.store = server.address();
  for (const double rate : {0.0, 100e6}) {
    links_.local_bytes_per_s = 0;
    links_.remote_bytes_per_s = rate;
    const SampleOutcome there = evaluate(vericache("verify_only_cached"));
    for (const char* same : {"slow_link_bytes", "fast_link_bytes", "exact_match_full", "acceptance_rate"}) {
      EXPECT_EQ(value(there, same), value(here, same)) << same;
    }
    for (const results::MetricValue& each : there.result.values) {
      EXPECT_EQ(each.storage, rate > 0 ? results::Storage::emulated : results::Storage::real) << each.metric;
    }
    EXPECT_EQ(value(evaluate(vericache("best")), "exact_match_full"), 1);
  }
  EXPECT_EQ(server.used(), 0) << "each cell's caches end with it";
}

TEST_F(RemotePrefixEvaluation, WithoutItsStoreOrRoomThereACellFails) {
  auto server = std::make_unique<storage::StoreServer>("127.0.0.1:0", 1000);
  links_.store = server->address();
  const auto failure = [&] { return testing::error_of([&] { (void)evaluate({{"name", "full"}}); }); };
  EXPECT_NE(failure().find("at most 1000 bytes together"), std::string::npos) << failure();
  server.reset();
  EXPECT_NE(failure().find("store " + links_.store + ": found cannot be reached"), std::string::npos) << failure();
}

TEST_F(RemotePrefixEvaluation, WhatCannotBeServedIsExplained) {
  EXPECT_THROW((void)evaluate({{"name", "gear"}}), UserError);
  EXPECT_THROW((void)evaluate(vericache("best", {{"name", "gear"}})), UserError);
  json composed = vericache("best");
  composed["aux"] = {{"name", "ngram"}};
  EXPECT_THROW((void)evaluate(composed), UserError);
}

}  // namespace
}  // namespace kvarena::evaluate
