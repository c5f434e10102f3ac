// A client that goes away takes its request along; one that is slow holds up nobody.

#include "tests/harness/serve/raw_client.h"
#include "tests/harness/serve/running_server.h"

namespace kvarena::serve {
namespace {

const std::string kCancelled = R"(kvarena_requests_total{model="tiny",outcome="cancelled"})";

json endless() { return {{"model", "tiny"}, {"prompt", "once upon a time"}, {"max_tokens", 2000}}; }

ServerSetup running(int64_t most) {
  return {.engine = {.batch = {.max_running = most}}, .http = {.port = 0, .limits = {.max_tokens = 2000}}};
}

TEST(ServeCancelling, AStreamThatNobodyReadsFreesItsEntries) {
  const RunningServer server({}, running(4));
  {
    const RawClient client(server.port());
    client.stream(endless());
    EXPECT_NE(client.read_until("data: ").find("HTTP/1.1 200"), std::string::npos);
    ASSERT_TRUE(server.reaches("kvarena_requests_running", 1));  // told behind the pass whose token is here
    EXPECT_GT(server.metric("kvarena_cache_reserved_bytes"), 0);
  }
  EXPECT_TRUE(server.reaches(kCancelled, 1));
  EXPECT_TRUE(server.reaches("kvarena_requests_running", 0));
  EXPECT_TRUE(server.reaches("kvarena_cache_reserved_bytes", 0));
}

TEST(ServeCancelling, AWholeAnswerThatNobodyWaitsForIsDropped) {
  const RunningServer server({}, running(4));
  {
    const RawClient client(server.port());
    client.post(endless());
    ASSERT_TRUE(server.reaches("kvarena_requests_running", 1));
  }
  EXPECT_TRUE(server.reaches(kCancelled, 1));
  EXPECT_TRUE(server.reaches("kvarena_cache_reserved_bytes", 0));
}

TEST(ServeCancelling, ARequestThatWaitsIsDroppedToo) {
  const RunningServer server({}, running(1));
  const RawClient first(server.port());
  first.stream(endless());
  ASSERT_TRUE(server.reaches("kvarena_requests_running", 1));
  {
    const RawClient waiting(server.port());
    waiting.post(endless());
    ASSERT_TRUE(server.reaches("kvarena_requests_waiting", 1));
  }
  EXPECT_TRUE(server.reaches(kCancelled, 1));
  EXPECT_TRUE(server.reaches("kvarena_requests_waiting", 0));
}

TEST(ServeCancelling, WhatIsCancelledChangesNoOtherAnswer) {
  const RunningServer server({}, running(4));
  const json body = {{"model", "tiny"}, {"prompt", "the one that stays"}, {"max_tokens", 400}};
  const json alone = server.post(body).at("choices");
  std::vector<std::thread> leaving;
  for (int i = 0; i < 6; ++i) {
    leaving.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const RawClient client(server.port());
        client.stream(endless());
        (void)client.read_until("data: ");
      }
    });
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(server.post(body).at("choices"), alone);
  for (std::thread& thread : leaving) thread.join();
  EXPECT_TRUE(server.reaches("kvarena_cache_reserved_bytes", 0));
}

TEST(ServeCancelling, AReaderThatIsSlowHoldsUpNobody) {
  const RunningServer server({}, running(4));
  const RawClient slow(server.port());
  slow.stream(endless());
  const json body = {{"model", "tiny"}, {"prompt", "quick"}, {"max_tokens", 5}};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(server.post(body).at("choices").size(), 1U);
  EXPECT_TRUE(server.reaches("kvarena_requests_running", 0));  // the slow one's answer is ready before it is read
  const std::string all = slow.read_until("data: [DONE]");
  EXPECT_NE(all.find("data: [DONE]"), std::string::npos);
}

TEST(ServeCancelling, ConnectionsThatSendNothingWholeAreOutlived) {
  const RunningServer server({}, running(4));
  {
    const RawClient half(server.port()), garbage(server.port()), silent(server.port());
    half.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"model\"");
    garbage.send(std::string(3000, '\x01') + "\r\n\r\n");
    EXPECT_EQ(server.post({{"model", "tiny"}, {"prompt", "x"}, {"max_tokens", 1}}).at("choices").size(), 1U);
  }
  EXPECT_EQ(server.post({{"model", "tiny"}, {"prompt", "x"}, {"max_tokens", 1}}).at("choices").size(), 1U);
}

}  // namespace
}  // namespace kvarena::serve
