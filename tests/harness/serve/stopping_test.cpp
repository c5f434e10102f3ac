// A server that stops answers what is under way for a while, and tells the rest.

#include "harness/serve/api_error.h"
#include "tests/harness/serve/raw_client.h"
#include "tests/harness/serve/running_server.h"

namespace kvarena::serve {
namespace {

json body(int64_t tokens) { return {{"model", "tiny"}, {"prompt", "once upon a time"}, {"max_tokens", tokens}}; }

TEST(ServeStopping, StreamsUnderWayEndWithinTheGrace) {
  RunningServer server({}, {.http = {.port = 0, .limits = {.max_tokens = 2000}}});
  const RawClient client(server.port());
  client.stream(body(2000));  // long enough to be under way on a busy machine
  ASSERT_NE(client.read_until("data: "), "");
  std::thread stopper([&] { server.engine().stop(/*grace_s=*/60); });
  while (!server.engine().stopping()) std::this_thread::yield();
  const json error = server.post(body(1), "/v1/completions", 503).at("error");
  EXPECT_EQ(error.at("type").get<std::string>(), "service_unavailable");
  EXPECT_EQ(server.client().Get("/health")->status, 503);
  const std::string all = client.read_until("data: [DONE]");
  EXPECT_NE(all.find("data: [DONE]"), std::string::npos) << all;
  stopper.join();
  server.http().stop();
}

TEST(ServeStopping, StreamsBeyondTheGraceEndWithAnError) {
  RunningServer server({},
                       {.engine = {.batch = {.max_running = 1}}, .http = {.port = 0, .limits = {.max_tokens = 2000}}});
  const RawClient client(server.port()), waiting(server.port());
  client.stream(body(2000));
  ASSERT_NE(client.read_until("data: "), "");
  waiting.post(body(2000));
  ASSERT_TRUE(server.reaches("kvarena_requests_waiting", 1));
  server.engine().stop(/*grace_s=*/0);
  const std::string error = "the server stopped before the answer was complete";  // may come in two pieces
  const std::string all = client.read_until(error);
  EXPECT_NE(all.find(error), std::string::npos) << all;
  EXPECT_EQ(all.find("[DONE]"), std::string::npos);
  EXPECT_NE(waiting.read_until("}").find("HTTP/1.1 503"), std::string::npos);
  server.http().stop();
}

TEST(ServeStopping, AServerMayEndWithRequestsInside) {
  for (int i = 0; i < 3; ++i) {
    const auto server =
        std::make_unique<RunningServer>(Methods{}, ServerSetup{.http = {.port = 0, .limits = {.max_tokens = 2000}}});
    const RawClient client(server->port());
    client.stream(body(2000));
    (void)client.read_until("data: ");
  }
}

TEST(ServeStopping, APortThatIsTakenIsRefused) {
  const RunningServer server;
  ServerSetup setup;
  setup.http.port = server.port();
  EXPECT_THROW(RunningServer({}, setup), UserError);
}

}  // namespace
}  // namespace kvarena::serve
