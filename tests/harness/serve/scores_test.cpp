// Log-probabilities over a socket are the harness's, of a prompt under a method too.

#include "harness/model/log_sum_exp.h"
#include "tests/harness/serve/running_server.h"

namespace kvarena::serve {
namespace {

using testing::tiny_prompt;

/// Log-probability of each prompt token but the first, from one reading of the whole prompt.
std::vector<double> read_scores(Transformer& model, const std::vector<int32_t>& prompt) {
  KvCache cache = model.make_cache();
  const SequencePass pass{.tokens = prompt, .cache = &cache, .hooks = nullptr, .logits = LogitsRows::all};
  const std::span<const float> rows = model.forward({&pass, 1});
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  std::vector<double> scores;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    const auto row = rows.subspan(i * vocab, vocab);
    scores.push_back(row[static_cast<size_t>(prompt[i + 1])] - log_sum_exp(row));
  }
  return scores;
}

/// Log-probability of each of `rest`, fed to a method that compressed what is before.
std::vector<double> fed_scores(Reference& reference, const std::vector<int32_t>& context,
                               const std::vector<int32_t>& rest, const json& method) {
  std::vector<double> scores;
  SessionOptions options;
  options.forced = rest;
  options.on_logits = [&](int64_t step, std::span<const float> row) {
    scores.push_back(row[static_cast<size_t>(rest[static_cast<size_t>(step)])] - log_sum_exp(row));
  };
  EXPECT_EQ(reference.tokens(context, method, std::move(options)), rest);
  return scores;
}

json scored(const std::string& model, const std::vector<int32_t>& prompt, int64_t tokens) {
  return {{"model", model}, {"prompt", prompt}, {"max_tokens", tokens}, {"echo", true}, {"logprobs", 2}};
}

/// The scores of an answer, its prompt's first token, which has none, left out.
std::vector<double> scores_of(const json& answer) {
  const json& list = answer.at("choices").at(0).at("logprobs").at("token_logprobs");
  EXPECT_TRUE(list.at(0).is_null());
  return {list.begin() + 1, list.end()};
}

TEST(ServeScores, OfAPromptAreThoseOfReadingIt) {
  const RunningServer server({}, {.engine = {.batch = {.pass_tokens = 70, .max_running = 8}}});
  Reference reference;
  const std::vector<int32_t> prompt = tiny_prompt(210);
  const json answer = server.post(scored("tiny", prompt, 0));
  EXPECT_EQ(scores_of(answer), read_scores(reference.model(), prompt));
  EXPECT_EQ(answer.at("choices").at(0).at("text").get<std::string>(), text_of(prompt));
  EXPECT_EQ(answer.at("usage").at("completion_tokens").get<int64_t>(), 0);
}

TEST(ServeScores, OfAPromptUnderAMethodAreThoseOfFeedingItsSecondHalf) {
  const std::vector<json> methods = {json{{"name", "snapkv"}, {"keep", 0.25}}, json{{"name", "kivi"}, {"bits", 2}},
                                     json{{"name", "quest"}, {"keep", 0.25}},
                                     json{{"name", "vericache"}, {"drafter", {{"name", "snapkv"}, {"keep", 0.25}}}}};
  const RunningServer server(methods);
  Reference reference;
  const std::vector<int32_t> prompt = tiny_prompt(161);
  const std::vector<double> full = read_scores(reference.model(), prompt);
  for (size_t i = 0; i < methods.size(); ++i) {
    for (const int64_t context : {80, 120}) {
      SCOPED_TRACE(methods[i].dump());
      const auto behind = prompt.begin() + context;
      json body = scored(fmt::format("tiny@{}", i), prompt, 0);
      if (context != 80) body["context_tokens"] = context;
      const std::vector<double> scores = scores_of(server.post(body));
      ASSERT_EQ(scores.size(), prompt.size() - 1);
      const std::vector<double> head(scores.begin(), scores.begin() + context - 1);
      EXPECT_EQ(head, std::vector<double>(full.begin(), full.begin() + context - 1));
      const std::vector<double> tail(scores.begin() + context - 1, scores.end());
      EXPECT_EQ(tail, fed_scores(reference, {prompt.begin(), behind}, {behind, prompt.end()}, methods[i]));
      const std::vector<double> unlike(full.begin() + context - 1, full.end());
      const bool lossless = i == 3;
      EXPECT_EQ(tail == unlike, lossless);
    }
  }
}

TEST(ServeScores, AnAnswerBehindAScoredPromptIsTheAnswerToIt) {
  const json method = {{"name", "snapkv"}, {"keep", 0.25}};
  const RunningServer server(Methods{method});
  const std::vector<int32_t> prompt = tiny_prompt(90);
  const json answer = server.post(scored("tiny", prompt, 7)).at("choices").at(0);
  const json plain = server.post({{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 7}, {"logprobs", 2}});
  EXPECT_EQ(answer.at("text").get<std::string>(),
            text_of(prompt) + plain.at("choices").at(0).at("text").get<std::string>());
  const json& scores = answer.at("logprobs").at("token_logprobs");
  ASSERT_EQ(scores.size(), 97U);
  EXPECT_EQ(json(std::vector<json>(scores.end() - 7, scores.end())),
            plain.at("choices").at(0).at("logprobs").at("token_logprobs"));

  json body = scored("tiny@0", prompt, 7);
  const json compressed = server.post(body).at("choices").at(0);
  EXPECT_EQ(compressed.at("logprobs").at("tokens").size(), 97U);
  EXPECT_EQ(compressed.at("text").get<std::string>().substr(0, 90), text_of(prompt));
  EXPECT_EQ(compressed.at("text").get<std::string>().size(), 97U);
}

TEST(ServeScores, NameTokensByTheirIdsWhereThatIsAsked) {
  const RunningServer server;
  json body = scored("tiny", {65, 66, 67}, 0);
  body["return_tokens_as_token_ids"] = true;
  const json lists = server.post(body).at("choices").at(0).at("logprobs");
  EXPECT_EQ(lists.at("tokens"), (json{"token_id:65", "token_id:66", "token_id:67"}));
  EXPECT_EQ(lists.at("text_offset"), (json{0, 1, 2}));
  for (const auto& [name, value] : lists.at("top_logprobs").at(2).items()) EXPECT_TRUE(name.starts_with("token_id:"));
}

TEST(ServeScores, TheLikeliestTokenOfAGreedyAnswerIsItsOwn) {
  const RunningServer server;
  const json body = {{"model", "tiny"}, {"prompt", "some prompt of text"}, {"max_tokens", 20}, {"logprobs", 3}};
  const json lists = server.post(body).at("choices").at(0).at("logprobs");
  ASSERT_EQ(lists.at("tokens").size(), 20U);
  for (size_t i = 0; i < 20; ++i) {
    const json& likeliest = lists.at("top_logprobs").at(i);
    const auto token = lists.at("tokens").at(i).get<std::string>();
    ASSERT_TRUE(likeliest.contains(token));
    EXPECT_EQ(likeliest.size(), 3U);
    EXPECT_EQ(likeliest.at(token), lists.at("token_logprobs").at(i));
    for (const auto& [other, value] : likeliest.items()) EXPECT_LE(value, likeliest.at(token)) << other;
    EXPECT_EQ(lists.at("text_offset").at(i).get<size_t>(), i);
  }
}

TEST(ServeScores, AChatHasThemInItsForm) {
  const RunningServer server;
  const json body = {{"model", "tiny"},
                     {"messages", {{{"role", "user"}, {"content", "hello"}}}},
                     {"max_tokens", 5},
                     {"logprobs", true},
                     {"top_logprobs", 2}};
  const json choice = server.post(body, "/v1/chat/completions").at("choices").at(0);
  const json& content = choice.at("logprobs").at("content");
  ASSERT_EQ(content.size(), 5U);
  std::string text;
  for (const json& token : content) {
    text += token.at("token").get<std::string>();
    EXPECT_EQ(token.at("top_logprobs").size(), 2U);
    EXPECT_EQ(token.at("top_logprobs").at(0).at("logprob"), token.at("logprob"));
    EXPECT_EQ(token.at("bytes").size(), 1U);
  }
  EXPECT_EQ(text, choice.at("message").at("content").get<std::string>());
}

TEST(ServeScores, AMethodThatDoesNotReadPromptsCannotScoreThem) {
  const RunningServer server(Methods{json{{"name", "epic"}, {"chunk", 64}}});
  const json error = server.post(scored("tiny@0", tiny_prompt(90), 1), "/v1/completions", 400).at("error");
  EXPECT_EQ(error.at("param").get<std::string>(), "echo");
}

}  // namespace
}  // namespace kvarena::serve
