// Models behind an endpoint: what is asked, what is stored, and what becomes of a server that fails.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>

#include "harness/core/failure.h"
#include "harness/core/files.h"
#include "harness/evaluate/completion_endpoint.h"
#include "tests/harness/evaluate/fake_server.h"
#include "tests/harness/evaluate/served_run.h"
#include "tests/harness/serve/running_server.h"

namespace kvarena::evaluate {
namespace {

const char* const kNoEnd = R"({"model": "tiny", "choices": [{"text": "half a)";

// --- requests

class Endpoint : public ::testing::Test {
 protected:
  [[nodiscard]] CompletionEndpoint endpoint(const std::string& model = "tiny", int64_t timeout_s = 30) const {
    ServerSettings settings{.url = server_.url(), .engine = "vllm", .model = model, .timeout_s = timeout_s};
    settings.patience.tries = 3;
    settings.patience.first_wait_s = 0.01;
    CompletionEndpoint made(settings);
    (void)made.version();
    return made;
  }
  /// The words about a request that fails; it was asked `tries` times.
  void expect_failure(const FakeServer::Trouble& trouble, const std::string& words, size_t tries, bool streamed = false,
                      int64_t timeout_s = 30) {
    SCOPED_TRACE(words);
    const CompletionEndpoint asked = endpoint("tiny", timeout_s);
    const size_t before = server_.asked().size();
    server_.trouble = trouble;
    const std::string failure =
        failure_of([&] { streamed ? (void)asked.stream(query_) : (void)asked.complete(query_); });
    server_.trouble = {};
    EXPECT_NE(failure.find(words), std::string::npos) << failure;
    EXPECT_EQ(server_.asked().size() - before, tries);
  }

  FakeServer server_;
  const CompletionQuery query_{.tokens = {65, 66}, .max_tokens = 4, .stop = {"\n"}};
};

TEST_F(Endpoint, AsksWithTokensAndReadsTheAnswer) {
  CompletionEndpoint asked = endpoint();
  EXPECT_EQ(asked.version(), "vllm 1.2.3");
  const CompletionAnswer answer = asked.complete(query_);
  EXPECT_EQ(answer.text, "ab");
  EXPECT_EQ(answer.token_ids, (std::vector<int32_t>{97, 98}));
  EXPECT_TRUE(answer.stopped);
  EXPECT_EQ(answer.prompt_tokens, 2);
  EXPECT_EQ(answer.cached_tokens, 4);
  EXPECT_EQ(answer.retries, 0);
  const json expected = {{"model", "tiny"},    {"prompt", {65, 66}}, {"max_tokens", 4},
                         {"temperature", 0.0}, {"stop", {"\n"}},     {"return_token_ids", true}};
  EXPECT_EQ(server_.asked().back(), expected);
  EXPECT_NE(failure_of([&] { (void)endpoint("tinny"); }).find("did you mean"), std::string::npos);
}

TEST_F(Endpoint, BusyAnswersAreRepeatedAndCounted) {
  int left = 2;
  server_.trouble = [&](const json&, httplib::Response& response) {
    if (left == 0) return false;
    response.status = left-- == 2 ? 429 : 503;
    return true;
  };
  EXPECT_EQ(endpoint().complete(query_).retries, 2);
}

TEST_F(Endpoint, WhatIsNoAnswerIsToldInWords) {
  const auto says = [](const std::string& body, int status = 200) {
    return [=](const json&, httplib::Response& response) {
      response.status = status;
      response.set_content(body, "application/json");
      return true;
    };
  };
  const auto cuts = [](const std::string& begin, const char* type = "application/json") {
    return [=](const json&, httplib::Response& response) {
      FakeServer::cut(response, begin, type);
      return true;
    };
  };
  const auto hangs = [](const json&, httplib::Response&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    return true;
  };
  expect_failure(says("<html>busy</html>"), "found HTTP 200: <html>busy</html>", 1);
  expect_failure(says("no such field", 400), "HTTP 400: no such field", 1);
  expect_failure(says("out of memory", 500), "HTTP 500: out of memory (after 3 tries)", 3);
  expect_failure(says(R"({"model": "other", "choices": []})"), "an answer of the model other", 1);
  expect_failure(says(R"({"model": "tiny", "choices": [{"text": "a", "finish_reason": "abort"}]})"), "\"abort\"", 1);
  expect_failure(says(R"({"model": "tiny", "choices": [{"text": "a", "finish_reason": null}]})"),
                 "expected a completion", 1);
  expect_failure(cuts(kNoEnd), "(after 3 tries)", 3);
  expect_failure(hangs, "imeout", 3, false, 1);
  const std::string event = R"(data: {"model": "tiny", "choices": [{"text": "a", "finish_reason": null}]})";
  expect_failure(cuts(event + "\n\ndata: {\"mod", "text/event-stream"), "/v1/completions: found ", 1, true);
  expect_failure(says(event + "\n\ndata: [DONE]\n\n"), "a stream that ended before its answer", 1, true);
  expect_failure(says(event + "\n\ndata: {\"error\": \"full\"}\n\n"), "full", 1, true);
  EXPECT_EQ(endpoint().complete(query_).text, "ab");
}

TEST_F(Endpoint, SendsTheKeyOfTheVariableAndShowsItToNobody) {
  ServerSettings settings{.url = server_.url() + "/v1/", .engine = "vllm", .model = "tiny"};
  settings.key_variable = "KVARENA_TEST_KEY";
  ::unsetenv("KVARENA_TEST_KEY");
  EXPECT_NE(failure_of([&] { (void)CompletionEndpoint(settings); }).find("KVARENA_TEST_KEY"), std::string::npos);
  ::setenv("KVARENA_TEST_KEY", "sk-secret", 1);
  CompletionEndpoint asked(settings);
  server_.trouble = [](const json&, httplib::Response& response) {
    response.status = 401;
    response.set_content("bad key sk-secret", "text/plain");
    return true;
  };
  const std::string failure = failure_of([&] { (void)asked.version(), (void)asked.complete(query_); });
  EXPECT_EQ(server_.key(), "Bearer sk-secret");
  EXPECT_NE(failure.find("bad key (key)"), std::string::npos) << failure;
  EXPECT_NE(failure.find("check KVARENA_TEST_KEY"), std::string::npos) << failure;
}

TEST_F(Endpoint, StepsOfLlamaCppAreAskedOneByOne) {
  CompletionEndpoint asked({.url = server_.url(), .engine = "llama.cpp", .model = "tiny"});
  EXPECT_EQ(asked.version(), "llama.cpp b7");
  const std::vector<int32_t> text = {'a', 'Z'};
  const auto steps = asked.score(query_, text);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].token, "token_id:97");
  EXPECT_DOUBLE_EQ(steps[0].log_probability, std::log(0.5));
  EXPECT_EQ(steps[0].likeliest.size(), 20U);
  EXPECT_DOUBLE_EQ(steps[0].likeliest.at("token_id:120"), std::log(0.25));
  EXPECT_DOUBLE_EQ(steps[1].log_probability, std::log(1.0 / 512)) << "none of the 20 likeliest";
  EXPECT_EQ(steps[1].likeliest.size(), 20U);
  const std::vector<json> sent = server_.steps();
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[0].at("prompt"), (json{65, 66}));
  EXPECT_EQ(sent[1].at("prompt"), (json{65, 66, 97}));
  EXPECT_EQ(sent[2].at("prompt"), sent[1].at("prompt"));
  EXPECT_GT(sent[2].at("n_probs").get<int64_t>(), 20);
  EXPECT_TRUE(sent[0].at("cache_prompt").get<bool>());
}

TEST_F(Endpoint, ScoresOfSglangAreOfItsOwnForm) {
  CompletionEndpoint asked({.url = server_.url(), .engine = "sglang", .model = "tiny"});
  EXPECT_EQ(asked.version(), "sglang 0.5");
  const std::vector<int32_t> text = {'a', 'b'};
  const auto steps = asked.score(query_, text);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].token, "token_id:98");
  EXPECT_DOUBLE_EQ(steps[1].log_probability, std::log(0.5));
  EXPECT_EQ(steps[1].likeliest,
            (std::map<std::string, double>{{"token_id:98", std::log(0.5)}, {"token_id:120", std::log(0.25)}}));
}

TEST_F(Endpoint, ScoresOfAnotherModelAreRefused) {
  const CompletionEndpoint asked = endpoint();
  server_.trouble = [](const json&, httplib::Response& response) {
    response.set_content(R"({"model": "other", "choices": []})", "application/json");
    return true;
  };
  const std::vector<int32_t> text = {'a'};
  const std::string failure = failure_of([&] { (void)asked.score(query_, text); });
  EXPECT_NE(failure.find("an answer of the model other"), std::string::npos) << failure;
}

TEST_F(Endpoint, SendsTextsAndMessagesWhereNoTokensAreGiven) {
  const CompletionEndpoint asked = endpoint();
  EXPECT_EQ(asked.complete({.text = "Who?", .max_tokens = 4}).text, "ab");
  EXPECT_EQ(server_.asked().back().at("prompt"), "Who?");
  EXPECT_EQ(asked.complete({.messages = {{"user", "Who?"}}, .max_tokens = 4}).text, "ab");
  EXPECT_EQ(server_.asked().back().at("messages"), json({{{"role", "user"}, {"content", "Who?"}}}));
  EXPECT_FALSE(server_.asked().back().contains("prompt"));
}

TEST_F(Endpoint, RequestsKeepTheirDistance) {
  const auto pace = std::make_shared<RequestPace>(1200);
  CompletionEndpoint asked({.url = server_.url(), .engine = "vllm", .model = "tiny", .pace = pace});
  CompletionEndpoint beside({.url = server_.url(), .engine = "vllm", .model = "tiny", .pace = pace});
  const auto begin = std::chrono::steady_clock::now();
  for (const CompletionEndpoint* each : {&asked, &beside, &asked, &beside}) (void)each->complete(query_);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(150));
}

// --- cells

using ServedAnswers = ServedRun;

TEST_F(ServedAnswers, AreScoredBesideTheBaselineWithADistanceOfTheirOwn) {
  FakeServer server;
  const auto summary = run(config(model(server.url(), "vllm"), two_settings()));
  EXPECT_EQ(summary.evaluated, 6);
  EXPECT_EQ(summary.failed_cells, 0);
  const std::vector<double> zero(3, 0.0), one(3, 1.0);
  EXPECT_EQ(values("bf16", "kl_topk_nats"), zero);
  EXPECT_EQ(values("bf16", "logprob_difference_nats"), zero);
  EXPECT_EQ(values("bf16", "exact_match_full"), one);
  EXPECT_EQ(values("fp8", "exact_match_full"), zero);
  EXPECT_EQ(values("fp8", "first_divergence"), one);
  EXPECT_EQ(values("fp8", "top1_agreement"), zero);
  for (const double kl : values("fp8", "kl_topk_nats")) EXPECT_NEAR(kl, std::log(2.0) / 4, 1e-12);
  for (const double lost : values("fp8", "logprob_difference_nats")) EXPECT_NEAR(lost, std::log(2.0), 1e-12);
  EXPECT_TRUE(values("fp8", "kl_nats").empty()) << "the distance over a vocabulary is another metric";
  EXPECT_EQ(values("fp8", "prefix_cached_tokens"), std::vector<double>(3, 4.0));
  EXPECT_EQ(values("fp8", "usage_difference_tokens"), zero);
  EXPECT_EQ(samples("fp8").front().prediction, "ac");
  const json activity = json::parse(samples("fp8").front().activity_json);
  EXPECT_EQ(activity.at("server_metrics").at("vllm:prefix_cache_hits_total").get<double>(), 10);
  EXPECT_EQ(activity.at("server_metrics").size(), 2U);
  const json card = json::parse(cell("fp8").cell.protocol_json);
  EXPECT_EQ(card.at("engine").get<std::string>(), "vllm 1.2.3");
  EXPECT_EQ(card.at("question").get<std::string>(), "seen");
}

TEST_F(ServedAnswers, ASettingThatChangesNoDigitIsInactive) {
  FakeServer server;
  server.alike = true;
  const auto summary = run(config(model(server.url(), "vllm"), two_settings()));
  EXPECT_EQ(summary.inactive_cells, 1);
  EXPECT_EQ(cell("fp8").state, CellState::inactive);
  EXPECT_EQ(cell("bf16").state, CellState::done);
}

TEST_F(ServedAnswers, OfLlamaCppActWhereAProbabilityDiffersUnderEqualWords) {
  FakeServer server;
  server.alike_in_words = true;
  EXPECT_EQ(run(config(model(server.url(), "llama.cpp"), two_settings())).inactive_cells, 0);
  EXPECT_EQ(values("fp8", "exact_match_full"), std::vector<double>(3, 1.0));
  // The first token of "ab" loses a half; the second has the same small share.
  for (const double lost : values("fp8", "logprob_difference_nats")) EXPECT_NEAR(lost, std::log(2.0) / 2, 1e-12);
  server.alike = true;
  database_ = folder_ / "alike.db";
  EXPECT_EQ(run(config(model(server.url(), "llama.cpp"), two_settings())).inactive_cells, 1);
}

TEST_F(ServedAnswers, AreAskedSeveralAtATimeWithTheSameResults) {
  FakeServer server;
  server.trouble = [](const json&, httplib::Response&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return false;
  };
  json several = model(server.url(), "vllm");
  several["concurrency"] = 3;
  const json more = {{"workloads", {{{"name", "fact_qa"}, {"things", 1}, {"filler", 0}, {"samples", 8}}}}};
  EXPECT_EQ(run(config(several, two_settings(), more)).evaluated, 16);
  EXPECT_LE(server.most_at_a_time(), 3);
  EXPECT_GE(server.most_at_a_time(), 2);
  EXPECT_EQ(server.asked().size(), 32U) << "of each sample two answers and the scores of both";
  const auto together = samples("fp8");
  const auto id = cell("fp8").cell.cell_id;
  database_ = folder_ / "alone.db";
  (void)run(config(model(server.url(), "vllm"), two_settings(), more));
  const auto alone = samples("fp8");
  EXPECT_EQ(cell("fp8").cell.cell_id, id) << "no part of what a cell is";
  ASSERT_EQ(alone.size(), together.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i].sample_id, together[i].sample_id);
    EXPECT_EQ(alone[i].prompt_sha256, together[i].prompt_sha256);
    EXPECT_EQ(alone[i].prediction, together[i].prediction);
  }
}

TEST_F(ServedAnswers, SeveralAtATimeGoOnWhereTheyWere) {
  FakeServer server;
  std::atomic<int> answers = 0;
  server.trouble = [&](const json& asked, httplib::Response& response) {
    if (asked.value("echo", false) || ++answers != 5) return false;
    response.status = 500;
    return true;
  };
  json several = model(server.url(), "vllm");
  several["concurrency"] = 2;
  const json more = {{"workloads", {{{"name", "fact_qa"}, {"things", 1}, {"filler", 0}, {"samples", 6}}}}};
  const ExperimentConfig asked = config(several, {{{"name", "server"}, {"label", "bf16"}}}, more);
  const auto first = run(asked);
  EXPECT_EQ(first.failed_cells, 1);
  EXPECT_GE(first.evaluated, 3);
  EXPECT_LE(first.evaluated, 5);
  server.trouble = {};
  const size_t before = server.asked().size();
  const auto second = run(asked, /*retry_failed=*/true);
  EXPECT_EQ(second.already_done, first.evaluated);
  EXPECT_EQ(second.evaluated, 6 - first.evaluated);
  EXPECT_EQ(static_cast<int64_t>(server.asked().size() - before), 2 * second.evaluated);
}

TEST_F(ServedAnswers, TellWhetherTheServersTemplateIsOurs) {
  FakeServer server;
  json templated = model(server.url(), "vllm");
  templated["template"] = "chatml";
  const auto card = [&](const std::string& rendered, const char* database) {
    server.rendered.assign(rendered.begin(), rendered.end());
    database_ = folder_ / database;
    (void)run(config(templated, {{{"name", "server"}, {"label", "bf16"}}}));
    return json::parse(cell("bf16").cell.protocol_json).at("server_template").get<std::string>();
  };
  const std::string ours =
      "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\nAnn.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
      "<|im_start|>assistant\n";
  EXPECT_EQ(card(ours, "ours.db"), "as ours");
  EXPECT_EQ(card("<|im_start|>system\nBe kind." + ours, "other.db").substr(0, 37),
            "not ours: <|im_start|>system Be kind.");
  templated["engine"] = "llama.cpp";
  EXPECT_EQ(card(ours, "text.db"), "as ours");
}

/// How a server fails, and what the cell says of it.
struct Failing {
  const char* name;
  const char* words;
  std::function<void(httplib::Response&)> answer;
};

class FailingServer : public ServedRun, public ::testing::WithParamInterface<Failing> {};

TEST_P(FailingServer, CostsItsCellAndTheRunGoesOnWhereItWas) {
  FakeServer server;
  int answers = 0;
  server.trouble = [&](const json& asked, httplib::Response& response) {
    const bool fp8 = asked.at("model").get<std::string>() == "tiny-fp8" && !asked.value("echo", false);
    if (!fp8 || ++answers < 2) return false;
    GetParam().answer(response);
    return true;
  };
  json patient = model(server.url(), "vllm");
  patient["request_timeout_s"] = 1;
  const ExperimentConfig asked = config(patient, two_settings());
  const auto first = run(asked);
  EXPECT_EQ(first.evaluated, 4);
  EXPECT_EQ(first.failed_cells, 1);
  EXPECT_EQ(cell("fp8").state, CellState::failed);
  EXPECT_EQ(cell("fp8").done_samples, 1);
  EXPECT_NE(cell("fp8").reason.find(GetParam().words), std::string::npos) << cell("fp8").reason;
  EXPECT_EQ(cell("bf16").state, CellState::done);
  server.trouble = {};
  const size_t before = server.asked().size();
  const auto second = run(asked, /*retry_failed=*/true);
  EXPECT_EQ(second.already_done, 4);
  EXPECT_EQ(second.evaluated, 2);
  EXPECT_EQ(cell("fp8").state, CellState::done);
  EXPECT_EQ(server.asked().size() - before, 8U) << "two samples: an answer and its scores, of two settings";
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FailingServer,
    ::testing::Values(
        Failing{"Closes", "/v1/completions", [](auto& response) { FakeServer::cut(response, ""); }},
        Failing{"StopsHalfway", "/v1/completions", [](auto& response) { FakeServer::cut(response, kNoEnd); }},
        Failing{"Hangs", "imeout", [](auto&) { std::this_thread::sleep_for(std::chrono::milliseconds(1300)); }},
        Failing{"AnswersGarbage", "<html>", [](auto& response) { response.set_content("<html>", "text/html"); }},
        Failing{"IsOutOfMemory", "HTTP 500", [](auto& response) { response.status = 500; }},
        Failing{
            "ChangesItsModel", "an answer of the model other",
            [](auto& response) { response.set_content(R"({"model": "other", "choices": []})", "application/json"); }}),
    [](const auto& way) { return std::string(way.param.name); });

TEST_F(ServedAnswers, AServerThatIsGoneFailsItsCellsAndIsAskedAgainWhenItIsBack) {
  auto server = std::make_unique<FakeServer>();
  const int port = server->port();
  const ExperimentConfig asked = config(model(server->url(), "vllm"), two_settings());
  server->trouble = [&](const json&, httplib::Response&) {
    if (server->asked().size() == 5) server->stop();
    return false;
  };
  const auto first = run(asked);
  EXPECT_GT(first.failed_cells, 0);
  EXPECT_LT(first.evaluated, 6);
  server.reset();
  server = std::make_unique<FakeServer>(port);
  const auto second = run(asked, /*retry_failed=*/true);
  EXPECT_EQ(second.failed_cells, 0);
  EXPECT_EQ(first.evaluated + second.evaluated, 6);
}

TEST_F(ServedAnswers, LeaveNoKeyInTheDatabase) {
  FakeServer server;
  ::setenv("KVARENA_TEST_KEY", "sk-secret", 1);
  json keyed = model(server.url(), "vllm");
  keyed["key_variable"] = "KVARENA_TEST_KEY";
  (void)run(config(keyed, two_settings()));
  EXPECT_EQ(server.key(), "Bearer sk-secret");
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    if (!file.is_regular_file()) continue;
    EXPECT_EQ(read_file(file.path()).find("sk-secret"), std::string::npos) << file.path();
  }
  std::string open = server.url();
  open.insert(open.find("//") + 2, "me:sk-secret@");
  const std::string failure = failure_of([&] { (void)run(config(model(open, "vllm"), two_settings())); });
  EXPECT_NE(failure.find("key_variable"), std::string::npos) << failure;
  EXPECT_EQ(failure.find("sk-secret"), std::string::npos) << failure;
}

TEST_F(ServedAnswers, AreTimedByTheArrivalOfTokens) {
  FakeServer server;
  std::atomic<int> streams = 0;
  server.trouble = [&](const json&, httplib::Response& response) {
    if (++streams != 2) return false;
    FakeServer::cut(response, "data: {\"model\": \"tiny\", \"cho", "text/event-stream");
    return true;
  };
  kind_ = results::CellKind::timing;
  const json more = {{"timing", {{"repeats", 3}, {"warmup", 0}, {"batch", 2}, {"max_new_tokens", 3}}},
                     {"workloads", {{{"name", "fact_qa"}, {"samples", 1}, {"request_tokens", {900, 3}}}}}};
  (void)run(config(model(server.url(), "vllm"), {{{"name", "server"}, {"label", "bf16"}}}, more));
  EXPECT_EQ(cell("bf16").reason, "");
  EXPECT_EQ(streams, 6);
  EXPECT_EQ(values("bf16", "failed_requests"), std::vector<double>{1});
  const json activity = json::parse(samples("bf16").at(0).activity_json);
  EXPECT_EQ(activity.at("failures").size(), 1U) << activity;
  EXPECT_EQ(activity.at("server_metrics").at("vllm:prefix_cache_hits_total").get<double>(), 50);
  EXPECT_EQ(values("bf16", "batch_requests"), std::vector<double>{2});
  const auto timed = [&](const char* metric) { return values("bf16", metric, results::Clock::measured).at(0); };
  EXPECT_GE(timed("end_to_end_ms"), 60) << "the server's own pauses";
  EXPECT_LT(timed("time_to_first_token_ms"), timed("end_to_end_ms"));
  EXPECT_GT(timed("inter_token_latency_ms"), 0);
  EXPECT_GT(timed("throughput_tokens_per_s"), 0);
  EXPECT_TRUE(server.asked().back().at("ignore_eos").get<bool>());
  EXPECT_NE(server.asked().back().at("cache_salt"), server.asked().front().at("cache_salt"));
}

/// `kvarena serve` answers as the same methods do in this process.
TEST_F(ServedAnswers, OfOurOwnServerHaveTheBitsOfThisProcess) {
  const json snapkv = {{"name", "snapkv"}, {"keep", 0.25}, {"window", 8}};
  const serve::RunningServer server(serve::Methods{snapkv});
  const std::string url = fmt::format("http://127.0.0.1:{}/v1", server.port());
  json here = model(url, "kvarena");
  for (const char* key : {"endpoint", "engine", "model", "request_tries"}) here.erase(key);
  json compressed = snapkv;
  compressed["label"] = "snapkv";
  (void)run(config(here, {{{"name", "full"}, {"label", "full"}}, compressed}));
  const std::vector<std::string> same = {"exact_match_full", "first_divergence", "top1_agreement",
                                         "resident_bytes",   "full_kv_bytes",    "qa_f1"};
  std::map<std::string, std::vector<double>> computed;
  for (const char* method : {"full", "snapkv"}) {
    for (const std::string& metric : same) computed[method + metric] = values(method, metric);
  }
  const auto full = samples("full"), kept = samples("snapkv");
  const std::vector<double> kl = values("snapkv", "kl_nats");
  EXPECT_NE(full.front().prediction, kept.front().prediction);

  database_ = folder_ / "behind.db";
  (void)run(config(model(url, "kvarena"), {{{"name", "server"}, {"label", "full"}},
                                           {{"name", "server"}, {"label", "snapkv"}, {"model", "tiny@0"}}}));
  for (const char* method : {"full", "snapkv"}) {
    SCOPED_TRACE(method);
    const auto& expected = std::string(method) == "full" ? full : kept;
    const auto found = samples(method);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].prediction, expected[i].prediction);
      EXPECT_EQ(found[i].output_tokens, expected[i].output_tokens);
      EXPECT_EQ(found[i].prompt_tokens, expected[i].prompt_tokens);
      EXPECT_EQ(found[i].finish_reason, expected[i].finish_reason);
    }
    for (const std::string& metric : same) {
      const std::vector<double> there = values(method, metric);
      ASSERT_EQ(there.size(), computed[method + metric].size()) << metric;
      for (size_t i = 0; i < there.size(); ++i) {
        EXPECT_TRUE(there[i] == computed[method + metric][i] || std::isnan(there[i])) << metric;
      }
    }
  }
  const std::vector<double> bound = values("snapkv", "kl_topk_nats");
  ASSERT_EQ(bound.size(), kl.size());
  for (size_t i = 0; i < kl.size(); ++i) {
    EXPECT_GT(bound[i], 0);
    EXPECT_LE(bound[i], kl[i] + 1e-9) << "a lower bound of the KL over the vocabulary";
  }
}

TEST_F(ServedAnswers, NeedNoWeightsHereAndAreNotMixedWithMethods) {
  FakeServer server;
  std::filesystem::remove(folder_ / "tiny" / "model.safetensors");
  EXPECT_EQ(run(config(model(server.url(), "vllm"), two_settings())).failed_cells, 0);
  const auto refusal = [&](const json& model, const json& methods) {
    return failure_of([&] { (void)run(config(model, methods)); });
  };
  json here = model(server.url(), "vllm");
  EXPECT_NE(refusal(here, {"full"}).find("a config of their own"), std::string::npos);
  here["engine"] = "transformers";
  EXPECT_NE(refusal(here, two_settings()).find("no \"endpoint\" beside it"), std::string::npos);
  here["engine"] = "vllm";
  here.erase("endpoint");
  EXPECT_NE(refusal(here, two_settings()).find("an \"endpoint\" beside it"), std::string::npos);
  const json wrong = {{{"name", "server"}, {"settings", 3}}};
  EXPECT_NE(refusal(model(server.url(), "vllm"), wrong).find("methods[0].settings"), std::string::npos);
}

}  // namespace
}  // namespace kvarena::evaluate
