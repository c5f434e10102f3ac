// Answers over a socket are those of a session alone, whatever the method, whole or streamed, one or many at a time.

#include <thread>

#include "tests/harness/serve/running_server.h"

namespace kvarena::serve {
namespace {

using testing::tiny_prompt;

json completion(const std::string& model, const std::vector<int32_t>& prompt, int64_t tokens) {
  return {{"model", model}, {"prompt", prompt}, {"max_tokens", tokens}};
}

SessionOptions greedy(int64_t tokens) { return {.stop = {.max_new_tokens = tokens}}; }

std::string streamed(const RunningServer& server, json body, const std::string& path = "/v1/completions") {
  body["stream"] = true;
  const httplib::Result result = server.client().Post(path, body.dump(), "application/json");
  EXPECT_TRUE(result);
  if (!result) return "";
  EXPECT_EQ(result->status, 200) << result->body;
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream");
  return result->body;
}

TEST(ServeAnswers, AreThoseOfASessionAloneUnderEveryKindOfMethod) {
  const std::vector<json> kinds = every_kind();
  const RunningServer server(kinds);
  Reference reference;
  const std::vector<int32_t> prompt = tiny_prompt(300);
  for (size_t i = 0; i <= kinds.size(); ++i) {
    const json method = i < kinds.size() ? kinds[i] : json();
    SCOPED_TRACE(method.dump());
    const std::string model = i < kinds.size() ? fmt::format("tiny@{}", i) : "tiny";
    const std::vector<int32_t> expected = reference.tokens(prompt, method, greedy(40));
    const json answer = server.post(completion(model, prompt, 40));
    EXPECT_EQ(answer.at("choices").at(0).at("text").get<std::string>(), text_of(expected));
    EXPECT_TRUE(answer.at("choices").at(0).at("finish_reason") == json("length"));
    EXPECT_EQ(answer.at("model").get<std::string>(), model);
    const json& usage = answer.at("usage");
    EXPECT_EQ(usage.at("prompt_tokens").get<int64_t>(), 300);
    EXPECT_EQ(usage.at("completion_tokens").get<int64_t>(), 40);
    EXPECT_EQ(usage.at("total_tokens").get<int64_t>(), 340);
    EXPECT_GT(usage.at("kvarena").at("resident_bytes").get<int64_t>(), 0);
  }
}

TEST(ServeAnswers, UsageHasBytesAndReusedTokens) {
  const RunningServer server(
      Methods{json{{"name", "streaming_llm"}, {"tokens", 32}}, json{{"name", "epic"}, {"chunk", 64}}});
  const std::vector<int32_t> prompt = tiny_prompt(320);
  const auto usage = [&](const std::string& model) { return server.post(completion(model, prompt, 2)).at("usage"); };
  const json full = usage("tiny"), dropped = usage("tiny@0"), reused = usage("tiny@1");
  const auto bytes = [](const json& of) { return of.at("kvarena").at("resident_bytes").get<int64_t>(); };
  EXPECT_LT(bytes(dropped), bytes(full) / 5);
  EXPECT_EQ(full.at("prompt_tokens_details").at("cached_tokens").get<int64_t>(), 0);
  EXPECT_GT(reused.at("prompt_tokens_details").at("cached_tokens").get<int64_t>(), 200);
}

TEST(ServeAnswers, AStreamConcatenatesToTheWholeAnswer) {
  const RunningServer server(Methods{json{{"name", "snapkv"}, {"keep", 0.25}}});
  for (const std::string model : {"tiny", "tiny@0"}) {
    json body = completion(model, tiny_prompt(100), 400);
    const json whole = server.post(body);
    body["stream_options"] = json{{"include_usage", true}};
    const std::vector<std::string> events = events_of(streamed(server, body));
    ASSERT_GE(events.size(), 4U);  // tokens come in more than one piece
    EXPECT_EQ(events.back(), "[DONE]");
    const json usage = json::parse(events[events.size() - 2]);
    EXPECT_TRUE(usage.at("choices").empty());
    EXPECT_EQ(usage.at("usage"), whole.at("usage"));
    std::string text;
    for (size_t i = 0; i + 2 < events.size(); ++i) {
      const json chunk = json::parse(events[i]).at("choices").at(0);
      text += chunk.at("text").get<std::string>();
      EXPECT_EQ(chunk.at("finish_reason").is_null(), i + 3 < events.size());
    }
    EXPECT_EQ(text, whole.at("choices").at(0).at("text").get<std::string>());
  }
}

TEST(ServeAnswers, AChatIsTheModelsTemplateAndTools) {
  const RunningServer server;
  const std::string path = "/v1/chat/completions";
  const json tool = {{"type", "function"}};
  const json body = {{"model", "tiny"},
                     {"messages", {{{"role", "user"}, {"content", "hello"}}}},
                     {"tools", json::array({tool})},
                     {"max_tokens", 12}};
  const json rendered = {{"model", "tiny"}, {"prompt", R"(T:[{"type": "function"}]user:hello;a:)"}, {"max_tokens", 12}};
  const json answer = server.post(body, path), same = server.post(rendered);
  const std::string text = answer.at("choices").at(0).at("message").at("content").get<std::string>();
  EXPECT_EQ(text, same.at("choices").at(0).at("text").get<std::string>());
  EXPECT_EQ(answer.at("usage"), same.at("usage"));
  EXPECT_EQ(answer.at("object").get<std::string>(), "chat.completion");
  std::string pieces;
  const std::vector<std::string> events = events_of(streamed(server, body, path));
  EXPECT_EQ(json::parse(events.front()).at("choices").at(0).at("delta").at("role").get<std::string>(), "assistant");
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    pieces += json::parse(events[i]).at("choices").at(0).at("delta").value("content", "");
  }
  EXPECT_EQ(pieces, text);
}

TEST(ServeAnswers, ResultsOfToolsInAChatLeaveByRule) {
  const json method = {{"name", "tool_results"}, {"newest", 0}, {"exclude", "read"}};
  const RunningServer server(Methods{method});
  const auto call = [](const char* id, const char* name) {
    return json{{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", "{}"}}}};
  };
  const std::string listed(60, 'l'), read(60, 'r');
  const json messages = {
      {{"role", "user"}, {"content", "look"}},
      {{"role", "assistant"}, {"content", "."}, {"tool_calls", {call("1", "list"), call("2", "read")}}},
      {{"role", "tool"}, {"tool_call_id", "1"}, {"content", listed}},
      {{"role", "tool"}, {"tool_call_id", "2"}, {"content", read}}};
  const json body = {{"model", "tiny@0"}, {"messages", messages}, {"max_tokens", 12}};
  const json answer = server.post(body, "/v1/chat/completions");
  const std::string rendered = "user:look;assistant:.;tool:" + listed + ";tool:" + read + ";a:";
  const auto begin = static_cast<int64_t>(rendered.find(listed));
  SessionOptions options = greedy(12);
  options.results = {{begin, begin + 60, "list"}};
  Reference reference;
  const std::vector<int32_t> prompt(rendered.begin(), rendered.end());
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content").get<std::string>(),
            text_of(reference.tokens(prompt, method, options)));
  const auto bytes = [](const json& of) { return of.at("usage").at("kvarena").at("resident_bytes").get<int64_t>(); };
  EXPECT_LT(bytes(answer), bytes(server.post(completion("tiny", prompt, 12))) * 7 / 10);
}

TEST(ServeAnswers, SamplingIsTheHarnesss) {
  const RunningServer server;
  Reference reference;
  const std::vector<int32_t> prompt = tiny_prompt(50);
  std::vector<std::string> texts;
  for (const uint64_t seed : {3U, 4U}) {
    json body = completion("tiny", prompt, 30);
    body.update({{"temperature", 0.8}, {"top_p", 0.9}, {"top_k", 50}, {"seed", seed}});
    SessionOptions options = greedy(30);
    options.sampling = {.temperature = 0.8, .top_k = 50, .top_p = 0.9, .seed = seed};
    texts.push_back(server.post(body).at("choices").at(0).at("text").get<std::string>());
    EXPECT_EQ(texts.back(), text_of(reference.tokens(prompt, json(), options)));
  }
  EXPECT_NE(texts[0], texts[1]);
}

TEST(ServeAnswers, EndAtStopStringsAndStopTokens) {
  Reference reference;
  const std::vector<int32_t> prompt = tiny_prompt(80);
  const std::string whole = text_of(reference.tokens(prompt, json(), greedy(40)));
  const RunningServer server;
  json body = completion("tiny", prompt, 40);
  body["stop"] = json::array({whole.substr(20, 3)});
  const size_t end = whole.find(whole.substr(20, 3));
  const json stopped = server.post(body);
  EXPECT_EQ(stopped.at("choices").at(0).at("text").get<std::string>(), whole.substr(0, end));
  EXPECT_EQ(stopped.at("choices").at(0).at("finish_reason").get<std::string>(), "stop");
  EXPECT_EQ(stopped.at("usage").at("completion_tokens").get<int64_t>(), static_cast<int64_t>(end) + 3);

  const RunningServer ends({}, {.stop_tokens = {static_cast<unsigned char>(whole[10])}});
  const size_t first = whole.find(whole[10]);
  const json ended = ends.post(completion("tiny", prompt, 40));
  EXPECT_EQ(ended.at("choices").at(0).at("text").get<std::string>(), whole.substr(0, first));
  EXPECT_EQ(ended.at("choices").at(0).at("finish_reason").get<std::string>(), "stop");
  json on = completion("tiny", prompt, 40);
  on["ignore_eos"] = true;
  EXPECT_EQ(ends.post(on).at("choices").at(0).at("text").get<std::string>(), whole);
}

TEST(ServeAnswers, SeveralPromptsAreSeveralChoices) {
  const RunningServer server;
  const json body = {{"model", "tiny"}, {"prompt", {"first prompt", "another"}}, {"max_tokens", 9}, {"echo", true}};
  const json answer = server.post(body);
  ASSERT_EQ(answer.at("choices").size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const std::string prompt = body.at("prompt").at(i).get<std::string>();
    const json alone = server.post({{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 9}});
    EXPECT_EQ(answer.at("choices").at(i).at("index").get<size_t>(), i);
    EXPECT_EQ(answer.at("choices").at(i).at("text").get<std::string>(),
              prompt + alone.at("choices").at(0).at("text").get<std::string>());
  }
  EXPECT_EQ(answer.at("usage").at("prompt_tokens").get<int64_t>(), 12 + 7);
}

TEST(ServeAnswers, WhatFollowsTheContextReachesTheMethodAfterwards) {
  const json method = {{"name", "snapkv"}, {"keep", 0.25}};
  const RunningServer server(Methods{method});
  Reference reference;
  const std::vector<int32_t> prompt = tiny_prompt(200);
  SessionOptions options = greedy(20);
  options.question.assign(prompt.begin() + 150, prompt.end());
  const auto expected = reference.tokens({prompt.begin(), prompt.begin() + 150}, method, options);
  json body = completion("tiny@0", prompt, 20);
  const json seen = server.post(body);
  body["context_tokens"] = 150;
  const json unseen = server.post(body);
  EXPECT_EQ(unseen.at("choices").at(0).at("text").get<std::string>(), text_of(expected));
  EXPECT_NE(unseen.at("usage").at("kvarena"), seen.at("usage").at("kvarena"));
  EXPECT_EQ(unseen.at("usage").at("prompt_tokens").get<int64_t>(), 200);
}

TEST(ServeAnswers, SixtyFourAtOnceAreAnsweredAsEachAlone) {
  const std::vector<json> kinds = every_kind();
  const RunningServer server(kinds, {.engine = {.batch = {.pass_tokens = 200, .max_running = 24}}});
  Reference reference;
  std::vector<json> bodies;
  std::vector<std::string> expected;
  for (size_t i = 0; i < 64; ++i) {
    const size_t kind = i % (kinds.size() + 1);
    const std::vector<int32_t> prompt = tiny_prompt(static_cast<int64_t>(20 + 5 * i), i);
    const auto tokens = static_cast<int64_t>(1 + i % 17);
    const std::string model = kind < kinds.size() ? fmt::format("tiny@{}", kind) : "tiny";
    bodies.push_back(completion(model, prompt, tokens));
    const json method = kind < kinds.size() ? kinds[kind] : json();
    expected.push_back(text_of(reference.tokens(prompt, method, greedy(tokens))));
  }
  std::vector<std::string> texts(bodies.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back(
        [&, i] { texts[i] = server.post(bodies[i]).at("choices").at(0).at("text").get<std::string>(); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(texts, expected);
  EXPECT_TRUE(server.reaches("kvarena_requests_running", 0));
  EXPECT_EQ(server.metric("kvarena_cache_reserved_bytes"), 0);
}

TEST(ServeAnswers, ModelsHealthAndMetricsAreThere) {
  const RunningServer server(Methods{json{{"name", "snapkv"}, {"keep", 0.25}}});
  httplib::Client client = server.client();
  const json models = json::parse(client.Get("/v1/models")->body).at("data");
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models.at(1).at("id").get<std::string>(), "tiny@0");
  EXPECT_EQ(models.at(1).at("kvarena").at("method"), (json{{"name", "snapkv"}, {"keep", 0.25}}));
  EXPECT_EQ(json::parse(client.Get("/v1/models/tiny@0")->body), models.at(1));
  EXPECT_EQ(client.Get("/v1/models/none")->status, 404);
  EXPECT_EQ(client.Get("/health")->status, 200);
  (void)server.post(completion("tiny", tiny_prompt(30), 4));
  EXPECT_TRUE(server.reaches("kvarena_http_responses_total{status=\"404\"}", 1)) << "counted once it was sent";
  const std::string text = client.Get("/metrics")->body;
  EXPECT_NE(text.find("kvarena_answer_tokens_total{model=\"tiny\"} 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("kvarena_prompt_tokens_total{model=\"tiny\"} 30\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace kvarena::serve
