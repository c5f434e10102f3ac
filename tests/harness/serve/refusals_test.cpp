// Requests that get no answer get their status and the reason, and harm nobody.

#include <sys/socket.h>

#include "tests/harness/serve/raw_client.h"
#include "tests/harness/serve/running_server.h"

namespace kvarena::serve {
namespace {

using testing::tiny_prompt;

TEST(ServeRefusals, SayWhatIsWrong) {
  const RunningServer server;
  struct Case {
    json body;
    int status;
    std::string param;
  };
  const std::vector<Case> cases = {
      {{{"model", "other"}, {"prompt", "x"}}, 404, "model"},
      {{{"model", "tiny"}, {"prompt", ""}}, 400, "prompt"},
      {{{"model", "tiny"}, {"prompt", {1, 128}}}, 400, "prompt"},
      {{{"model", "tiny"}, {"prompt", "x"}, {"n", 2}}, 400, "n"},
      {{{"model", "tiny"}, {"prompt", "x"}, {"max_tokens", 1025}}, 400, "max_tokens"},
      {{{"model", "tiny"}, {"prompt", tiny_prompt(2040)}, {"max_tokens", 9}}, 400, "prompt"},
      {{{"model", "tiny"}, {"prompt", "x"}, {"context_tokens", 2}}, 400, "context_tokens"},
      {{{"model", "tiny"}, {"prompt", "x"}, {"echo", true}, {"logprobs", 1}}, 400, "prompt"}};
  for (const Case& one : cases) {
    const json error = server.post(one.body, "/v1/completions", one.status).at("error");
    EXPECT_EQ(error.at("param").get<std::string>(), one.param) << error;
    EXPECT_EQ(error.at("code").get<int>(), one.status);
    EXPECT_FALSE(error.at("message").get<std::string>().empty());
  }
  EXPECT_EQ(server.metric("kvarena_passes_total"), 0);  // none of them reached the engine
}

TEST(ServeRefusals, ArePathsMethodsAndContentThatNobodyServes) {
  const RunningServer server;
  httplib::Client client = server.client();
  EXPECT_EQ(status_of(client.Post("/v1/embeddings", "{}", "application/json")), 404);
  EXPECT_EQ(status_of(client.Get("/v2")), 404);
  EXPECT_TRUE(json::parse(client.Get("/v2")->body).contains("error"));
  EXPECT_EQ(status_of(server.client().Put("/v1/completions", "{}", "application/json")), 405);
  EXPECT_EQ(status_of(server.client().Delete("/v1/models/tiny")), 405);
  const httplib::MultipartFormDataItems parts = {{"a", "b", "", ""}};
  EXPECT_EQ(status_of(server.client().Post("/v1/completions", parts)), 400);
  EXPECT_EQ(status_of(client.Post("/v1/completions", "not JSON", "application/json")), 400);
  EXPECT_EQ(status_of(client.Get("/health")), 200);
  const RawClient lengthless(server.port());
  lengthless.send("POST /v1/completions HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_NE(lengthless.read().find("HTTP/1.1 411"), std::string::npos);
}

TEST(ServeRefusals, AreKeysThatAreNotTheServers) {
  const RunningServer server({}, {.http = {.port = 0, .key = "sesame"}});
  const std::string body = json{{"model", "tiny"}, {"prompt", "x"}, {"max_tokens", 2}}.dump();
  const auto ask = [&](const httplib::Headers& headers) {
    return status_of(server.client().Post("/v1/completions", headers, body, "application/json"));
  };
  EXPECT_EQ(ask({}), 401);
  EXPECT_EQ(ask({{"Authorization", "Bearer wrong"}}), 401);
  EXPECT_EQ(ask({{"Authorization", "Bearer sesame"}}), 200);
  EXPECT_EQ(status_of(server.client().Get("/metrics")), 401);
  EXPECT_EQ(status_of(server.client().Get("/v1/models")), 401);
  EXPECT_EQ(status_of(server.client().Get("/health")), 200);
}

TEST(ServeRefusals, AreBodiesTooLargeWhetherTheirLengthIsToldOrNot) {
  const RunningServer server({}, {.http = {.port = 0, .most_body_bytes = 1000}});
  const std::string large = json{{"model", "tiny"}, {"prompt", std::string(2000, 'x')}}.dump();
  httplib::Client client = server.client();
  EXPECT_EQ(status_of(client.Post("/v1/completions", large, "application/json")), 413);
  const auto chunked = client.Post(
      "/v1/completions",
      [&](size_t, httplib::DataSink& sink) {
        sink.write(large.data(), large.size());
        sink.done();
        return true;
      },
      "application/json");
  ASSERT_TRUE(chunked);
  EXPECT_EQ(chunked->status, 413);
  const std::string largest = json{{"model", "tiny"}, {"prompt", std::string(900, 'x')}, {"max_tokens", 1}}.dump();
  EXPECT_EQ(status_of(client.Post("/v1/completions", largest, "application/json")), 200);
}

TEST(ServeRefusals, AreRequestsBeyondTheQueue) {
  RunningServer server({}, {.engine = {.batch = {.max_running = 1}, .most_waiting = 1},
                            .http = {.port = 0, .limits = {.max_tokens = 2000}}});
  const RawClient first(server.port()), second(server.port());
  first.stream({{"model", "tiny"}, {"prompt", "x"}, {"max_tokens", 2000}});
  ASSERT_TRUE(server.reaches("kvarena_requests_running", 1));
  second.stream({{"model", "tiny"}, {"prompt", "y"}, {"max_tokens", 2000}});
  ASSERT_TRUE(server.reaches("kvarena_requests_waiting", 1));
  const std::string body = json{{"model", "tiny"}, {"prompt", "z"}, {"max_tokens", 1}}.dump();
  const httplib::Result refused = server.client().Post("/v1/completions", body, "application/json");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
  EXPECT_EQ(json::parse(refused->body).at("error").at("type").get<std::string>(), "rate_limit_error");
}

TEST(ServeRefusals, AreAnswersThatTakeTooLong) {
  const RunningServer server({{{"name", "rkv"}, {"tokens", 64}, {"decode_interval", 1}}},  // slow: scores at every step
                             {.engine = {.timeout_s = 0.1}, .http = {.port = 0, .limits = {.max_tokens = 100000}}});
  const json error = server.post({{"model", "tiny@0"}, {"prompt", "x"}, {"max_tokens", 2000}}, "/v1/completions", 504);
  EXPECT_EQ(error.at("error").at("type").get<std::string>(), "timeout_error");
  EXPECT_EQ(server.post({{"model", "tiny"}, {"prompt", "x"}, {"max_tokens", 1}}).at("choices").size(), 1U);
}

TEST(ServeRefusals, AreCachesThatTheBudgetCannotHold) {
  const RunningServer server({}, {.engine = {.batch = {.cache_bytes = 100'000}}});
  const json body = {{"model", "tiny"}, {"prompt", tiny_prompt(1000)}, {"max_tokens", 5}};
  const json error = server.post(body, "/v1/completions", 400).at("error");
  EXPECT_NE(error.at("message").get<std::string>().find("at most 100000"), std::string::npos) << error;
}

}  // namespace
}  // namespace kvarena::serve
