// Requests that arrive over time at a server: when they are sent, what is counted, and what becomes of those that fail.

#include "harness/evaluate/served_load.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "harness/core/failure.h"
#include "harness/core/files.h"
#include "harness/evaluate/serving_point.h"
#include "tests/harness/evaluate/fake_server.h"
#include "tests/harness/evaluate/served_run.h"

namespace kvarena::evaluate {
namespace {

void sleep_ms(int64_t milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// An answer of one token after so long.
AskTimed after_ms(int64_t milliseconds) {
  return [=](int64_t, const std::function<double()>& now) {
    sleep_ms(milliseconds);
    return serving::Timeline{.token_s = {now()}};
  };
}

TEST(ServeByAsking, SendsRequestsWhenTheyAreDueWhateverIsUnderWay) {
  const serving::ServingRun run = serve_by_asking(serving::Load::at_times({0, 0.05, 0.1}), after_ms(200));
  ASSERT_EQ(run.requests.size(), 3U);
  EXPECT_EQ(run.peak_running, 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(run.requests[i].arrival_s, 0.05 * static_cast<double>(i));
    EXPECT_GE(run.requests[i].token_s.front() - run.requests[i].arrival_s, 0.2);
    EXPECT_GE(run.requests[i].left_s, run.requests[i].token_s.front());
  }
  EXPECT_GE(run.seconds, 0.3);
}

TEST(ServeByAsking, ClientsSendTheNextRequestAfterTheirLastAnswer) {
  const serving::ServingRun run = serve_by_asking(serving::Load::of_clients(2, 6), after_ms(40));
  EXPECT_EQ(run.peak_running, 2);
  EXPECT_GE(run.seconds, 0.12);
  EXPECT_EQ(run.requests.back().outcome, serving::Outcome::answered);
  EXPECT_GE(run.requests.back().arrival_s, 0.08);
}

class ServedLoad : public ServedRun {
 protected:
  ServedLoad() { kind_ = results::CellKind::serving; }

  [[nodiscard]] ExperimentConfig loads(const FakeServer& server, json serving, const json& methods = two_settings()) {
    json behind = model(server.url(), "vllm");
    behind["request_timeout_s"] = timeout_s_;
    serving.update({{"max_new_tokens", 3}, {"ignore_eos", true}, {"time_to_first_token_ms", 60000}});
    serving["time_per_output_token_ms"] = 60000;  // whatever else the machine does
    return config(
        behind, methods,
        {{"serving", serving}, {"workloads", {{{"name", "fact_qa"}, {"things", 1}, {"filler", 0}, {"samples", 24}}}}});
  }
  int64_t timeout_s_ = 60;
  [[nodiscard]] double measured(const std::string& method, const std::string& metric, size_t point = 0) const {
    return values(method, metric, results::Clock::measured).at(point);
  }
  /// Streams that were asked for, of one model.
  [[nodiscard]] static std::vector<json> streams(FakeServer& server, const std::string& of) {
    std::vector<json> found;
    for (json& asked : server.asked()) {
      if (asked.value("stream", false) && asked.at("model") == of) found.push_back(std::move(asked));
    }
    return found;
  }
};

TEST_F(ServedLoad, StandsInTheServingTableWithBothGoodputs) {
  FakeServer server;
  const auto summary = run(loads(server, {{"load", {0.5, 2}}, {"requests", 8}, {"warmup", 2}, {"cooldown", 1}}));
  EXPECT_EQ(summary.failed_cells, 0);
  for (const char* method : {"bf16", "fp8"}) {
    SCOPED_TRACE(method);
    EXPECT_EQ(cell(method).done_samples, 2);
    for (size_t point = 0; point < 2; ++point) {
      EXPECT_EQ(measured(method, "offered_requests_per_s", point), measured("bf16", "offered_requests_per_s", point))
          << "of what the baseline served";
    }
    EXPECT_GE(measured(method, "mean_end_to_end_ms"), 60) << "the server's own pauses";
    EXPECT_GT(measured(method, "p50_inter_token_latency_ms"), 0);
    EXPECT_EQ(measured(method, "attainment"), 1);
    EXPECT_GT(measured(method, "goodput_latency_per_s"), 0);
    EXPECT_GE(measured(method, "goodput_score_per_s"), 0);
    EXPECT_EQ(values(method, "failed_requests"), (std::vector<double>{0, 0}));
    EXPECT_EQ(values(method, "usage_difference_tokens"), (std::vector<double>{0, 0}));
    EXPECT_TRUE(values(method, "mean_queueing_ms", results::Clock::measured).empty()) << "the server's own affair";
    EXPECT_TRUE(values(method, "peak_cache_bytes", results::Clock::measured).empty());
    EXPECT_EQ(samples(method).at(0).output_tokens, 24);
  }
  const auto series =
      results::ResultsReader(database_).series(cell("fp8").cell.cell_id, "end_to_end_ms", results::Clock::measured);
  ASSERT_FALSE(series.empty());
  EXPECT_EQ(series.front().series.values.size(), 5U) << "without the first two and the last";
  // The baseline: each point all at once, and as it arrives. Nothing is kept between requests.
  EXPECT_EQ(streams(server, "tiny").size(), 32U);
  EXPECT_EQ(streams(server, "tiny-fp8").size(), 16U);
  std::set<std::string> salts;
  for (const json& asked : streams(server, "tiny")) salts.insert(asked.at("cache_salt").get<std::string>());
  EXPECT_EQ(salts.size(), 32U);
  EXPECT_EQ(streams(server, "tiny").front().at("ignore_eos"), true);
}

TEST_F(ServedLoad, SendsRequestsByATraceOrGammaGaps) {
  const std::filesystem::path trace = folder_ / "trace.csv";
  std::string rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (const int tenth : {0, 0, 0, 9}) rows += fmt::format("2023-11-16 18:17:00.{}000000,10,10\n", tenth);
  write_file(trace, rows);
  const json ways[] = {{{"arrivals", "trace"}, {"trace", trace.string()}, {"load", {1}}, {"requests", 4}},
                       {{"burstiness", 0.25}, {"load", {1}}, {"requests", 4}}};
  for (const json& way : ways) {
    SCOPED_TRACE(way.dump());
    database_ = folder_ / fmt::format("{}.db", way.contains("trace") ? "trace" : "gamma");
    FakeServer server;
    EXPECT_EQ(run(loads(server, way)).failed_cells, 0);
    EXPECT_EQ(streams(server, "tiny-fp8").size(), 4U);
    EXPECT_EQ(values("fp8", "failed_requests"), std::vector<double>{0});
    EXPECT_EQ(measured("fp8", "attainment"), 1);
    EXPECT_EQ(measured("fp8", "offered_requests_per_s"), measured("bf16", "offered_requests_per_s"));
  }
}

TEST_F(ServedLoad, CountsWhatFailsComesTooLateOrIsRefused) {
  timeout_s_ = 2;
  FakeServer server;
  std::atomic<int> asked = 0;
  server.trouble = [&](const json& body, httplib::Response& response) {
    if (body.at("model") != "tiny-fp8" || !body.value("stream", false)) return false;
    const int number = ++asked;
    if (number == 1) FakeServer::cut(response, "data: {\"model\": \"tiny-fp8\", \"cho", "text/event-stream");
    if (number == 2) response.status = 429;
    if (number == 3) sleep_ms(2500);
    if (number == 4) response.set_content("<html>", "text/html");
    if (number == 5) response.set_content("data: {\"model\": \"other\", \"choices\": []}\n\n", "text/event-stream");
    return number <= 5;
  };
  const auto summary = run(loads(server, {{"arrivals", "clients"}, {"load", {1}}, {"requests", 8}}));
  EXPECT_EQ(summary.failed_cells, 0);
  EXPECT_EQ(values("fp8", "failed_requests"), std::vector<double>{4});
  EXPECT_EQ(values("fp8", "refused_requests"), std::vector<double>{1});
  EXPECT_EQ(measured("fp8", "attainment"), 3.0 / 8);
  const json activity = json::parse(samples("fp8").at(0).activity_json);
  EXPECT_EQ(activity.at("timed_out").get<int>(), 1);
  const json& failures = activity.at("failures");
  EXPECT_EQ(failures.size(), 5U) << failures.dump(1);
  EXPECT_EQ(values("bf16", "failed_requests"), std::vector<double>{0});
}

TEST_F(ServedLoad, AServerThatAnswersNothingFailsItsCellAlone) {
  FakeServer server;
  server.trouble = [](const json& body, httplib::Response& response) {
    if (body.at("model") != "tiny-fp8" || !body.value("stream", false)) return false;
    response.status = 500;
    return true;
  };
  const ExperimentConfig asked = loads(server, {{"load", {1}}, {"requests", 4}});
  EXPECT_EQ(run(asked).failed_cells, 1);
  EXPECT_EQ(cell("bf16").state, CellState::done);
  EXPECT_NE(cell("fp8").reason.find("HTTP 500"), std::string::npos) << cell("fp8").reason;
  server.trouble = {};
  EXPECT_EQ(run(asked, /*retry_failed=*/true).failed_cells, 0);
  EXPECT_EQ(cell("fp8").state, CellState::done);
}

TEST_F(ServedLoad, PromptsShareAPrefixOnPurpose) {
  FakeServer server;
  (void)run(loads(server, {{"load", {1}}, {"requests", 4}, {"shared_prefix", 50}}, {{{"name", "server"}}}));
  const std::vector<json> asked = streams(server, "tiny");
  ASSERT_EQ(asked.size(), 8U);
  const json& first = asked.front().at("prompt");
  for (const json& other : asked) {
    for (size_t i = 0; i < 50; ++i) EXPECT_EQ(other.at("prompt").at(i), first.at(i)) << i;
  }
  std::set<std::string> salts;
  for (const json& other : asked) salts.insert(other.at("cache_salt").get<std::string>());
  EXPECT_EQ(salts.size(), 2U) << "one a run: what an earlier run left is not found";
}

TEST_F(ServedLoad, SessionsSendTurnsInTheirOrderAndMayShareWhatTheyRepeat) {
  FakeServer server;
  ExperimentConfig asked = loads(server, {{"arrivals", "sessions"}, {"think", 0.01}, {"load", {2}}, {"requests", 10}},
                                 {{{"name", "server"}}});
  asked.workloads[0] = {.name = "weka-trace", .label = "weka", .settings_json = R"({"shrink": 32})"};
  EXPECT_EQ(run(asked).failed_cells, 0);
  const json activity = json::parse(samples("server").at(0).activity_json);
  EXPECT_EQ(activity.at("answered_by_turn"), json({2, 2, 2, 2, 2}));
  std::set<std::string> salts;
  std::map<json, size_t> newest;  // length of a session's last prompt, by how it begins
  std::vector<json> streamed = streams(server, "tiny");
  ASSERT_EQ(streamed.size(), 20U);
  for (const json& other : streamed) salts.insert(other.at("cache_salt").get<std::string>());
  EXPECT_EQ(salts.size(), 2U);
  streamed.erase(streamed.begin(), streamed.begin() + 10);  // the baseline, all at once
  for (const json& other : streamed) {
    const json& prompt = other.at("prompt");
    size_t& before = newest[json(std::vector<json>(prompt.begin(), prompt.begin() + 12))];
    EXPECT_GT(prompt.size(), before);
    before = prompt.size();
  }
  EXPECT_EQ(newest.size(), 2U);
}

TEST_F(ServedLoad, RefusesWhatIsKnownOfThisProcessAlone) {
  FakeServer server;
  const auto refusal = [&](const json& serving) { return failure_of([&] { (void)loads(server, serving); }); };
  EXPECT_NE(refusal({{"hardware", "h100-80gb"}}).find("modelled clock"), std::string::npos);
  EXPECT_NE(refusal({{"stored_prompts", true}}).find("stored_prompts"), std::string::npos);
  EXPECT_NE(refusal({{"requests", 4}, {"warmup", 3}, {"cooldown", 1}}).find("serving.warmup"), std::string::npos);
  EXPECT_NE(refusal({{"arrivals", "clients"}, {"load", {2}}, {"burstiness", 0.5}}).find("serving.burstiness"),
            std::string::npos);
}

}  // namespace
}  // namespace kvarena::evaluate
