// Requests under a method of reuse share what they leave, and the small model is there before the first of them.

#include <filesystem>
#include <thread>

#include "tests/harness/serve/running_server.h"

namespace kvarena::serve {
namespace {

using testing::tiny_prompt;

constexpr int64_t kChunk = 64;

json completion(const std::vector<int32_t>& prompt) {
  return {{"model", "tiny@0"}, {"prompt", prompt}, {"max_tokens", 12}};
}

std::string answer(const RunningServer& server, const std::vector<int32_t>& prompt) {
  return server.post(completion(prompt)).at("choices").at(0).at("text").get<std::string>();
}

std::vector<int32_t> joined(std::initializer_list<std::vector<int32_t>> parts) {
  std::vector<int32_t> prompt;
  for (const auto& part : parts) prompt.insert(prompt.end(), part.begin(), part.end());
  return prompt;
}

int64_t held(const RunningServer& server) {
  const ReuseMemory& memory = *server.models().find("tiny@0").memory;
  return dynamic_cast<const MemoryChunkStore&>(*memory.chunks).bytes() + memory.prefixes->bytes();
}

TEST(ServeReuse, ChunksAreComputedOnceForAllRequests) {
  const json method = {{"name", "epic"}, {"chunk", kChunk}, {"tokens", 8}};
  const RunningServer server(Methods{method});
  Reference reference;
  const auto a = tiny_prompt(kChunk, 1), b = tiny_prompt(kChunk, 2), c = tiny_prompt(kChunk, 3);
  const SessionOptions options{.stop = {.max_new_tokens = 12}};
  EXPECT_EQ(held(server), 0);
  int64_t bytes = 0;
  for (const auto& [prompt, fresh] :
       {std::pair(joined({a, b, {7}}), true), {joined({b, a, {8}}), false}, {joined({c, b, {9}}), true}}) {
    EXPECT_EQ(answer(server, prompt), text_of(reference.tokens(prompt, method, options)));
    EXPECT_EQ(held(server) > bytes, fresh);
    bytes = held(server);
  }
}

TEST(ServeReuse, BeginningsOfPromptsAreKept) {
  const json method = {{"name", "prefix_cache"}, {"chunk", kChunk}};
  const RunningServer server(Methods{method});
  Reference reference;
  const auto shared = tiny_prompt(kChunk, 1);
  for (const int32_t last : {3, 4}) {
    const auto prompt = joined({shared, {last, 5, 6}});
    const std::vector<int32_t> expected = reference.tokens(prompt, method, {.stop = {.max_new_tokens = 12}});
    EXPECT_EQ(answer(server, prompt), text_of(expected));
    EXPECT_GT(held(server), 0);
  }
}

TEST(ServeReuse, WhatIsKeptStaysWithinItsBytesWhateverComesAtOnce) {
  const json method = {{"name", "epic"}, {"chunk", kChunk}, {"tokens", 8}};
  Reference reference;
  const int64_t chunk = compute_chunk(reference.model(), tiny_prompt(kChunk))->bytes();
  const RunningServer server(Methods{method}, {.reuse_bytes = 3 * chunk});
  std::vector<std::thread> clients;
  std::vector<std::string> answers(12);
  const auto prompt_of = [](uint64_t i) {  // six chunks, more than are kept, some of them shared
    std::vector<int32_t> prompt;
    for (uint64_t part = 0; part < 6; ++part) {
      const auto own = tiny_prompt(kChunk, (i + part) % 8);
      prompt.insert(prompt.end(), own.begin(), own.end());
    }
    prompt.push_back(static_cast<int32_t>(i));
    return prompt;
  };
  for (uint64_t i = 0; i < answers.size(); ++i)
    clients.emplace_back([&, i] { answers[i] = answer(server, prompt_of(i)); });
  for (std::thread& client : clients) client.join();
  for (uint64_t i = 0; i < answers.size(); ++i) {
    const auto expected = reference.tokens(prompt_of(i), method, {.stop = {.max_new_tokens = 12}});
    EXPECT_EQ(answers[i], text_of(expected)) << i;
  }
  (void)answer(server, joined({tiny_prompt(kChunk, 20), {1}}));
  EXPECT_LE(held(server), 3 * chunk);
  EXPECT_GT(held(server), 0);
}

/// A reader of another vocabulary, gone from the disk once the server listens.
TEST(ServeReuse, TheSmallModelIsOpenBeforeTheFirstRequest) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path reader = folder / "reader";
  testing::write_tiny_model(reader, 2, 4);
  testing::write_vocabulary(reader, testing::shuffled(), {{'a', 'b'}, {'t', 'h'}});
  const json method = {{"name", "speccache"}, {"model", reader.string()}, {"recompute", 0.3}, {"chunk", kChunk}};
  const RunningServer server(Methods{method});
  Reference reference;
  const std::string text =
      "the tab about the bath that abets a thin habit of baths and cabs above the third tab; the rest";
  const std::vector<int32_t> prompt(text.begin(), text.end());
  Prefill read = prefill(reference.model(), prompt, {});
  read.layout.text = text;
  for (int64_t i = 0; i < std::ssize(text); ++i) read.layout.ranges.push_back({.begin = i, .end = i + 1});
  const auto made = make_method(method, "test");
  const auto session = start_session(reference.model(), read, *made, {.stop = {.max_new_tokens = 12}});
  std::filesystem::remove_all(reader);
  Session* const one[] = {session.get()};
  run_together(reference.model(), one);
  for (const json& sent : {json(text), json(prompt)}) {
    const json body = {{"model", "tiny@0"}, {"prompt", sent}, {"max_tokens", 12}};
    EXPECT_EQ(server.post(body).at("choices").at(0).at("text").get<std::string>(), text_of(session->tokens));
  }
}

TEST(ServeReuse, ASmallModelThatIsAbsentIsRefusedBeforeTheServerListens) {
  const json method = {{"name", "speccache"}, {"model", "/nowhere/reader"}};
  EXPECT_THROW((void)RunningServer(Methods{method}), UserError);
}

}  // namespace
}  // namespace kvarena::serve
