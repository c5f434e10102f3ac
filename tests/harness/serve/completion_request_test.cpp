// Bodies of requests: every field as it is meant, every wrong one refused by name.

#include "harness/serve/completion_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/random.h"
#include "harness/serve/api_error.h"

namespace kvarena::serve {
namespace {

/// Status, field and message of the refusal; status 0 where there was none.
struct Refusal {
  int status = 0;
  std::string param;
  std::string message;
};

Refusal refusal_of(const std::string& body, bool chat = false) {
  try {
    (void)(chat ? parse_chat(body) : parse_completion(body));
  } catch (const ApiError& error) {
    return {.status = error.status(), .param = error.param(), .message = error.what()};
  }
  return {};
}

TEST(CompletionRequest, EveryFieldIsRead) {
  const CompletionRequest request = parse_completion(
      R"({"model": "m@x", "prompt": "once", "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": 11,
          "stop": ["a", "bc"], "logprobs": 3, "echo": true, "stream": true, "stream_options": {"include_usage": true},
          "n": 1, "best_of": 1, "user": "u", "ignore_eos": true, "context_tokens": 4, "suffix": null})");
  EXPECT_EQ(request.model, "m@x");
  EXPECT_EQ(std::get<std::string>(request.prompts.at(0)), "once");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.seed, 11U);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(request.logprobs, 3);
  EXPECT_TRUE(request.echo);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.stream_usage);
  EXPECT_TRUE(request.ignore_end);
  EXPECT_EQ(request.context_tokens, 4);
}

TEST(CompletionRequest, WhatIsAbsentIsGreedyAndUnscored) {
  const CompletionRequest request = parse_completion(R"({"model": "m", "prompt": "x"})");
  EXPECT_TRUE(request.sampling.greedy());
  EXPECT_EQ(request.sampling.seed, 0U);
  EXPECT_FALSE(request.max_tokens || request.logprobs || request.context_tokens);
  EXPECT_FALSE(request.echo || request.stream || request.ignore_end);
}

TEST(CompletionRequest, PromptsAreTextsOrIds) {
  using Ids = std::vector<int32_t>;
  const auto prompts = [](const std::string& prompt) {
    return parse_completion(R"({"model": "m", "prompt": )" + prompt + "}").prompts;
  };
  EXPECT_EQ(prompts("[1, 2, 3]"), (std::vector<Prompt>{Ids{1, 2, 3}}));
  EXPECT_EQ(prompts("[[1, 2], [3]]"), (std::vector<Prompt>{Ids{1, 2}, Ids{3}}));
  EXPECT_EQ(prompts(R"(["a", [4]])"), (std::vector<Prompt>{std::string("a"), Ids{4}}));
}

TEST(CompletionRequest, AWrongFieldIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("prompt": 3)", "prompt"},
      {R"("prompt": [])", "prompt"},
      {R"("prompt": [1, -2])", "prompt"},
      {R"("prompt": [1, 2.5])", "prompt"},
      {R"("prompt": [1, 99999999999])", "prompt"},
      {R"("prompt": "x", "max_tokens": 0)", "max_tokens"},
      {R"("prompt": "x", "max_tokens": 1.5)", "max_tokens"},
      {R"("prompt": "x", "max_tokens": 18446744073709551615)", "max_tokens"},
      {R"("prompt": "x", "temperature": -1)", "temperature"},
      {R"("prompt": "x", "temperature": "hot")", "temperature"},
      {R"("prompt": "x", "top_p": 0)", "top_p"},
      {R"("prompt": "x", "top_p": 1.1)", "top_p"},
      {R"("prompt": "x", "seed": -1)", "seed"},
      {R"("prompt": "x", "stop": [""])", "stop"},
      {R"("prompt": "x", "stop": 4)", "stop"},
      {R"("prompt": "x", "n": 2)", "n"},
      {R"("prompt": "x", "best_of": 3)", "best_of"},
      {R"("prompt": "x", "logprobs": 21)", "logprobs"},
      {R"("prompt": "x", "logprobs": true)", "logprobs"},
      {R"("prompt": "x", "echo": "yes")", "echo"},
      {R"("prompt": "x", "presence_penalty": 0.1)", "presence_penalty"},
      {R"("prompt": "x", "logit_bias": {"5": 1})", "logit_bias"},
      {R"("prompt": "x", "stream_options": {"include_usage": true})", "stream_options"},
      {R"("prompt": ["x", "y"], "stream": true)", "stream"},
      {R"("prompt": "x", "context_tokens": 0)", "context_tokens"},
      {R"("prompt": "x", "messages": [])", "messages"}};
  for (const auto& [fields, field] : cases) {
    const Refusal refusal = refusal_of(R"({"model": "m", )" + fields + "}");
    EXPECT_EQ(refusal.status, 400) << fields;
    EXPECT_EQ(refusal.param, field) << fields << ": " << refusal.message;
  }
  EXPECT_EQ(refusal_of(R"({"prompt": "x"})").param, "model");
}

TEST(CompletionRequest, AMisspeltFieldIsToldTheNearest) {
  const Refusal refusal = refusal_of(R"({"model": "m", "prompt": "x", "temperatur": 1})");
  EXPECT_EQ(refusal.param, "temperatur");
  EXPECT_NE(refusal.message.find("did you mean \"temperature\"?"), std::string::npos) << refusal.message;
}

TEST(CompletionRequest, WhatIsNoObjectIsRefused) {
  for (const std::string body : {"", "{", "[]", "null", "3", "{\"model\": \"m\", \"prompt\": \"\xff\"}", "{}x"}) {
    EXPECT_EQ(refusal_of(body).status, 400) << body;
    EXPECT_EQ(refusal_of(body, /*chat=*/true).status, 400) << body;
  }
  const std::string deep(100'000, '[');
  EXPECT_EQ(refusal_of(deep).status, 400);
  EXPECT_EQ(refusal_of(R"({"model": "m", "messages": )" + deep, true).status, 400);
}

/// Every prefix of a good body, and a good body with one byte changed: an answer or a refusal, nothing else.
TEST(CompletionRequest, DamagedBodiesAreReadOrRefused) {
  const std::string completion = R"({"model": "m", "prompt": [[1, 2], "x"], "stop": ["a"], "seed": 3, "logprobs": 2})";
  const std::string chat = R"({"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
      {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1}"}}]}], "tools": [{}]})";
  const RandomStream random(1, "bodies");
  for (const bool chats : {false, true}) {
    const std::string& good = chats ? chat : completion;
    EXPECT_EQ(refusal_of(good, chats).status, 0) << refusal_of(good, chats).message;
    for (size_t length = 0; length < good.size(); ++length) {
      EXPECT_EQ(refusal_of(good.substr(0, length), chats).status, 400);
    }
    for (uint64_t draw = 0; draw < 2000; ++draw) {
      std::string damaged = good;
      damaged[random.below(good.size(), 2 * draw)] = static_cast<char>(random.below(256, 2 * draw + 1));
      const int status = refusal_of(damaged, chats).status;
      EXPECT_TRUE(status == 0 || status == 400) << damaged;
    }
  }
}

TEST(ChatRequest, MessagesAndToolsAreAsTemplatesReadThem) {
  const CompletionRequest request = parse_chat(
      R"({"model": "m", "max_completion_tokens": 9, "logprobs": true, "top_logprobs": 2,
          "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                       {"role": "assistant", "content": null,
                        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]},
                       {"role": "tool", "content": "c", "tool_call_id": "1"}],
          "tools": [{"type": "function", "function": {"name": "f", "description": "d"}}]})");
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.logprobs, 2);
  const jinja::List& messages = *request.conversation->messages.list();
  EXPECT_EQ(*messages.at(0).find("content")->text(), "ab");
  EXPECT_EQ(jinja::to_json(*messages.at(1).find("tool_calls"), {}, false),
            R"([{"type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": 2}}}])");
  EXPECT_EQ(*messages.at(2).find("tool_call_id")->text(), "1");
  EXPECT_EQ(jinja::to_json(*request.conversation->tools, {}, false),
            R"([{"type": "function", "function": {"name": "f", "description": "d"}}])");
}

TEST(ChatRequest, ToolsThatAreNotWantedAreNotShown) {
  const CompletionRequest request = parse_chat(
      R"({"model": "m", "messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}], "tool_choice": "none"})");
  EXPECT_FALSE(request.conversation->tools.has_value());
}

TEST(ChatRequest, AWrongFieldIsRefusedByName) {
  const std::string messages = R"("messages": [{"role": "user", "content": "a"}])";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("messages": "a")", "messages"},
      {R"("messages": [])", "messages"},
      {R"("messages": ["a"])", "messages"},
      {R"("messages": [{"role": "user"}])", "messages"},
      {R"("messages": [{"content": "a"}])", "messages"},
      {R"("messages": [{"role": "user", "content": [{"type": "image_url"}]}])", "messages"},
      {R"("messages": [{"role": "assistant", "tool_calls": [3]}])", "messages"},
      {messages + R"(, "tools": {})", "tools"},
      {messages + R"(, "tool_choice": "required")", "tool_choice"},
      {messages + R"(, "top_logprobs": 2)", "top_logprobs"},
      {messages + R"(, "response_format": {"type": "json_object"})", "response_format"},
      {messages + R"(, "prompt": "x")", "prompt"}};
  for (const auto& [fields, field] : cases) {
    const Refusal refusal = refusal_of(R"({"model": "m", )" + fields + "}", /*chat=*/true);
    EXPECT_EQ(refusal.status, 400) << fields;
    EXPECT_EQ(refusal.param, field) << fields << ": " << refusal.message;
  }
}

}  // namespace
}  // namespace kvarena::serve
