// Conversations whose messages follow from the answers: beside the same conversation held step by step, with each
// answer's prompt put together anew, and in cells of a run.

#include "harness/evaluate/live_conversation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "datasets/prompt.h"
#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/evaluate/model_evaluator.h"
#include "harness/evaluate/quality.h"
#include "tests/harness/evaluate/outcome_value.h"
#include "tests/support/decoding.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_blanks.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::evaluate {
namespace {

using experiment::ExperimentConfig;
using experiment::Question;
using nlohmann::json;
using results::CellKind;

constexpr int64_t kTokens = 7;  // of an answer, at most
constexpr size_t kAnswers = 3;

/// Echoes the last answer, so that the next one hangs on it.
datasets::LiveReply echo(std::span<const std::string> answers) {
  const bool over = answers.size() == kAnswers;
  return {.message = over ? "" : fmt::format("({})Goon:", answers.back()),
          .record = json(std::vector<std::string>(answers.begin(), answers.end())).dump(-1, ' ', true)};
}

datasets::Sample echoed_sample() {
  std::string context;
  for (int i = 0; i < 40; ++i) context += fmt::format("line{}ofthetext;", i * i % 97);
  return {.id = "echo",
          .messages = {{"user", context + "Begin:"}},
          .chat_template = false,
          .question = {0, context.size()},
          .live = {.reply = echo, .most_tokens = 200},
          .references = {"none"},
          .generation = {.max_new_tokens = kTokens}};
}

/// Text of a later context, of the answers in the first one.
std::string retold(std::span<const std::string> answers) {
  std::string text;
  for (size_t i = 0; i < 30; ++i) text += fmt::format("note{}is{};", i, answers[i % kAnswers]);
  return text;
}

/// Echoes in a second context too.
datasets::LiveReply echo_twice(std::span<const std::string> answers) {
  datasets::LiveReply reply = echo(answers);
  if (answers.size() == kAnswers) reply.anew = {{"user", retold(answers)}, {"user", "Begin:"}};
  if (answers.size() == 2 * kAnswers) reply.message.clear();
  return reply;
}

/// One method's conversation, with each prompt put together from its pieces.
struct StepByStep {
  std::vector<std::string> answers;
  std::vector<std::vector<int32_t>> tokens;  // of each answer
  std::vector<int32_t> prompt, first, said;  // compressed; the question after it; all that follows that
  std::vector<size_t> places;                // of answers in `said`
};

class LiveConversation : public ::testing::Test {
 protected:
  LiveConversation() {
    testing::write_tiny_model(folder_ / "tiny", 3);
    testing::add_blanks(folder_ / "tiny");
  }

  [[nodiscard]] LoadedModel model() const {
    return {{.name = "tiny", .path = (folder_ / "tiny").string(), .chat_template = "none"}, folder_.path(), {}};
  }

  [[nodiscard]] static StepByStep step_by_step(LoadedModel& loaded, const datasets::Sample& sample, bool seen,
                                               const json& spec) {
    const Tokenizer& tokenizer = *loaded.opened().tokenizer;
    const auto encoded = [&](const std::string& piece) { return tokenizer.encode(piece, {.add_special = false}); };
    const std::string& text = sample.messages[0].content;
    StepByStep talk;
    talk.prompt = tokenizer.encode(seen ? text : text.substr(0, sample.question.byte), {.add_special = true});
    if (!seen) talk.first = encoded(text.substr(sample.question.byte));
    const auto method = make_method(spec, "test");
    const Prefill prompt = prefill(loaded.transformer(), talk.prompt, method->needs(), kPrefillChunk, loaded.facts());
    const auto say = [&](const std::vector<int32_t>& tokens) {
      talk.said.insert(talk.said.end(), tokens.begin(), tokens.end());
    };
    while (talk.answers.size() < kAnswers) {
      std::vector<int32_t> question = talk.first;
      question.insert(question.end(), talk.said.begin(), talk.said.end());
      const auto decoded =
          testing::decode(loaded.transformer(), prompt, *method, kTokens, {.question = std::move(question)});
      talk.places.push_back(talk.said.size());
      talk.tokens.push_back(decoded.tokens);
      talk.answers.push_back(datasets::strip(tokenizer.decode(decoded.tokens)));
      const datasets::LiveReply reply = echo(talk.answers);
      if (reply.message.empty()) break;
      say(encoded((sample.chat_template ? "" : " ") + talk.answers.back()));
      say(encoded(reply.message));
    }
    say(talk.tokens.back());
    return talk;
  }

  /// Mean KL of a method from full KV at the steps of full KV's answers, both fed what full KV's conversation says.
  [[nodiscard]] static double kl_along(LoadedModel& loaded, const StepByStep& full, const json& spec) {
    const auto fed = [&](const json& by) {
      const auto method = make_method(by, "test");
      const Prefill prompt = prefill(loaded.transformer(), full.prompt, method->needs(), kPrefillChunk, loaded.facts());
      return testing::decode(loaded.transformer(), prompt, *method, kTokens,
                             {.forced = full.said, .question = full.first})
          .logits;
    };
    const testing::Logits exact = fed({{"name", "full"}}), lossy = fed(spec);
    double sum = 0;
    int64_t steps = 0;
    for (size_t answer = 0; answer < full.places.size(); ++answer) {
      for (size_t i = 0; i < full.tokens[answer].size() && full.places[answer] + i < full.said.size(); ++i) {
        const size_t at = full.places[answer] + i;
        sum += metrics::step_divergence(std::span<const float>(exact[at]), lossy[at], full.tokens[answer][i]).kl_nats;
        ++steps;
        if (full.said[at] != full.tokens[answer][i]) break;
      }
    }
    return sum / static_cast<double>(steps);
  }

  [[nodiscard]] ExperimentConfig config(const json& workload, const json& more = json::object()) const {
    json text = {
        {"name", "tiny"},
        {"models", {{{"name", "tiny"}, {"path", (folder_ / "tiny").string()}, {"template", "chatml"}}}},
        {"workloads", {workload}},
        {"methods", {"full", {{"name", "snapkv"}, {"keep", 0.25}, {"window", 8}}, {{"name", "kivi"}, {"bits", 2}}}},
        {"engine", {{"max_new_tokens", 9}, {"noise_floor", 1}}}};
    text.update(more);
    return experiment::parse_config(text.dump(), "tiny.json", {}, registry_validators());
  }

  testing::TemporaryFolder folder_;
};

TEST_F(LiveConversation, EachMethodGoesOnWithItsOwnAnswers) {
  LoadedModel loaded = model();
  const datasets::Sample sample = echoed_sample();
  const std::vector<json> specs = {
      {{"name", "full"}},
      {{"name", "snapkv"}, {"keep", 0.25}, {"window", 8}},
      {{"name", "h2o"}, {"keep", 0.25}},
      {{"name", "kivi"}, {"bits", 2}, {"residual_length", 32}},
      {{"name", "quest"}, {"keep", 0.25}},
      {{"name", "vericache"}, {"draft_length", 4}, {"drafter", {{"name", "knorm"}, {"keep", 0.3}}}}};
  for (const Question question : {Question::unseen, Question::seen}) {
    std::vector<EvaluatedMethod> methods;
    for (const json& spec : specs) {
      methods.push_back({.method = make_method(spec, "test"), .reference = spec["name"] == "full"});
    }
    Request request = loaded.request(sample, {}, {}, question);
    request.continued = [&](const datasets::Sample& further) { return loaded.request(further, {}, {}, question); };
    const auto outcomes = evaluate_quality(loaded.transformer(), request, methods);
    const bool seen = question == Question::seen;
    const StepByStep full = step_by_step(loaded, sample, seen, specs[0]);
    int64_t departed = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      ASSERT_EQ(outcomes[i].failure, "") << specs[i];
      const StepByStep own = step_by_step(loaded, sample, seen, specs[i]);
      EXPECT_EQ(outcomes[i].result.prediction, echo(own.answers).record) << specs[i];
      int64_t tokens = 0;
      for (const auto& answer : own.tokens) tokens += std::ssize(answer);
      EXPECT_EQ(outcomes[i].result.output_tokens, tokens);
      EXPECT_EQ(outcomes[i].result.prompt_tokens, std::ssize(full.prompt) + std::ssize(full.first));
      EXPECT_EQ(value_of(outcomes[i], "exact_match_full"), own.tokens == full.tokens);
      EXPECT_NEAR(value_of(outcomes[i], "kl_nats"), kl_along(loaded, full, specs[i]), 1e-9) << specs[i];
      departed += own.answers != full.answers;
    }
    EXPECT_EQ(value_of(outcomes[0], "kl_nats"), 0);
    EXPECT_EQ(value_of(outcomes[0], "exact_match_full"), 1);
    EXPECT_EQ(outcomes.back().result.prediction, outcomes[0].result.prediction) << "a verifier is lossless here too";
    EXPECT_GT(departed, 0);
  }
}

TEST_F(LiveConversation, AContextThatBeginsAnewIsAPromptOfItsMethodAlone) {
  LoadedModel loaded = model();
  datasets::Sample sample = echoed_sample();
  sample.chat_template = true;  // of messages, which this model's template puts behind one another
  sample.live.reply = echo_twice;
  const std::vector<json> specs = {
      {{"name", "full"}},
      {{"name", "snapkv"}, {"keep", 0.25}, {"window", 8}},
      {{"name", "kivi"}, {"bits", 2}, {"residual_length", 32}},
      {{"name", "quest"}, {"keep", 0.25}},
      {{"name", "vericache"}, {"draft_length", 4}, {"drafter", {{"name", "knorm"}, {"keep", 0.3}}}}};
  for (const Question question : {Question::unseen, Question::seen}) {
    std::vector<EvaluatedMethod> methods;
    for (const json& spec : specs) methods.push_back({.method = make_method(spec, "test")});
    Request request = loaded.request(sample, {}, {}, question);
    request.continued = [&](const datasets::Sample& further) { return loaded.request(further, {}, {}, question); };
    const auto outcomes = evaluate_quality(loaded.transformer(), request, methods);
    const bool seen = question == Question::seen;
    const StepByStep full = step_by_step(loaded, sample, seen, specs[0]);
    int64_t departed = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      ASSERT_EQ(outcomes[i].failure, "") << specs[i];
      const StepByStep first = step_by_step(loaded, sample, seen, specs[i]);
      datasets::Sample later = sample;
      const std::string context = retold(first.answers);
      later.messages = {{"user", context + "Begin:"}};
      later.question = {0, context.size()};
      const StepByStep second = step_by_step(loaded, later, seen, specs[i]);
      std::vector<std::string> answers = first.answers;
      answers.insert(answers.end(), second.answers.begin(), second.answers.end());
      EXPECT_EQ(outcomes[i].result.prediction, echo(answers).record) << specs[i];
      EXPECT_NEAR(value_of(outcomes[i], "kl_nats"), kl_along(loaded, full, specs[i]), 1e-9) << specs[i];
      const Prefill prompt = prefill(loaded.transformer(), second.prompt, {}, kPrefillChunk, loaded.facts());
      EXPECT_EQ(value_of(outcomes[i], "full_kv_bytes"), static_cast<double>(prompt.cache.bytes())) << specs[i];
      departed += first.answers != full.answers;
    }
    EXPECT_EQ(outcomes.back().result.prediction, outcomes[0].result.prediction);
    EXPECT_GT(departed, 0);
  }
}

TEST_F(LiveConversation, AMessageThatCannotBeAskedCostsItsMethodAlone) {
  LoadedModel loaded = model();
  const datasets::Sample sample = echoed_sample();
  std::vector<EvaluatedMethod> methods;
  for (const json& spec : {json{{"name", "full"}}, json{{"name", "knorm"}, {"keep", 0.3}}})
    methods.push_back({.method = make_method(spec, "test")});
  Request request = loaded.request(sample, {}, {}, Question::unseen);
  const std::string said = [&] {
    Request plain = request;
    plain.continued = [&](const datasets::Sample& further) {
      return loaded.request(further, {}, {}, Question::unseen);
    };
    return json::parse(evaluate_quality(loaded.transformer(), plain, methods)[0].result.prediction)[0]
        .get<std::string>();
  }();
  request.continued = [&](const datasets::Sample& further) {
    if (further.messages[0].content.find("(" + said + ")") == std::string::npos) throw UserError("too long");
    return loaded.request(further, {}, {}, Question::unseen);
  };
  const auto outcomes = evaluate_quality(loaded.transformer(), request, methods);
  EXPECT_EQ(outcomes[0].failure, "");
  EXPECT_EQ(outcomes[1].failure, "too long");
}

TEST_F(LiveConversation, ResultsOfLiveCallsAreToldAsTheyCome) {
  LoadedModel loaded = model();
  const json settings = {{"samples", 1}, {"turns", 4}, {"live", 3}};
  datasets::Sample sample = *datasets::make_workload("tool_loop", settings.dump(), "test")->open({}).next();
  const EvaluatedMethod method{.method = make_method({{"name", "tool_results"}, {"newest", 0}}, "test")};
  const auto dropped = [&] {
    Request request = loaded.request(sample, {}, {}, Question::unseen);
    request.continued = [&](const datasets::Sample& further) {
      return loaded.request(further, {}, {}, Question::unseen);
    };
    const auto outcomes = evaluate_quality(loaded.transformer(), request, std::span(&method, 1));
    EXPECT_EQ(outcomes[0].failure, "");
    return json::parse(outcomes[0].result.activity_json)["entries_dropped"].get<int64_t>();
  };
  const int64_t all = dropped();
  sample.live.reply = [reply = sample.live.reply](std::span<const std::string> answers) {
    datasets::LiveReply untold = reply(answers);
    untold.results.clear();
    return untold;
  };
  const int64_t of_prompt = dropped();
  sample.results.clear();
  EXPECT_EQ(dropped(), 0);
  EXPECT_GT(of_prompt, 0);
  EXPECT_GT(all, of_prompt);
}

TEST_F(LiveConversation, CellsOfToolLoopsDoNotHangOnOneAnother) {
  const json workload = {{"name", "tool_loop"}, {"turns", 6}, {"live", 3}, {"samples", 2}};
  for (const char* question : {"unseen", "seen"}) {
    json asked = workload;
    asked["question"] = question;
    const ExperimentConfig tiny = config(asked);
    ModelEvaluator opened{tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}}};
    const experiment::Plan plan = experiment::make_plan(tiny, opened);
    opened.begin_model(tiny.models[0], tiny.engine);
    for (const experiment::CellGroup& group : plan.groups) {
      std::vector<const experiment::PlannedCell*> cells;
      for (const experiment::PlannedCell& cell : group.cells) cells.push_back(&cell);
      const auto evaluated = [&](ModelEvaluator& by, std::span<const experiment::PlannedCell* const> some, int64_t at) {
        return by.evaluate({.model = *group.model,
                            .workload = *group.workload,
                            .kind = group.kind,
                            .sample_id = group.sample_ids[static_cast<size_t>(at)],
                            .sample_index = at,
                            .cells = some});
      };
      for (int64_t at = 0; at < std::ssize(group.sample_ids); ++at) {
        const auto together = evaluated(opened, cells, at);
        ModelEvaluator anew{tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}}};
        anew.begin_model(tiny.models[0], tiny.engine);
        for (size_t i = 0; i < cells.size(); ++i) {
          const auto alone = evaluated(anew, std::span(cells).subspan(i, 1), at);
          ASSERT_EQ(together[i].failure, "");
          EXPECT_EQ(together[i].result.prediction, alone[0].result.prediction);
          for (const char* metric :
               {"tool_loop", "tool_loop_missing", "tool_loop_steps", "kl_nats", "resident_bytes"}) {
            EXPECT_EQ(value_of(together[i], metric), value_of(alone[0], metric)) << metric;
          }
          const json record = json::parse(together[i].result.prediction);
          EXPECT_EQ(record["steps"].size(), 3U);
          if (group.kind == CellKind::noise_floor) {
            EXPECT_EQ(value_of(together[i], "kl_nats"), 0);
          }
        }
      }
    }
  }
}

TEST_F(LiveConversation, RequestsUnderLoadRefuseIt) {
  const ExperimentConfig tiny =
      config({{"name", "tool_loop"}, {"turns", 6}, {"samples", 4}}, {{"serving", {{"load", {1}}, {"requests", 2}}}});
  ModelEvaluator opened{tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}}};
  const experiment::Plan plan = experiment::make_plan(tiny, opened);
  opened.begin_model(tiny.models[0], tiny.engine);
  const auto serving = std::ranges::find(plan.groups, CellKind::serving, &experiment::CellGroup::kind);
  ASSERT_NE(serving, plan.groups.end());
  const experiment::PlannedCell* const cell[] = {&serving->cells.front()};
  const std::string refusal = failure_of([&] {
    (void)opened.evaluate({.model = *serving->model,
                           .workload = *serving->workload,
                           .kind = serving->kind,
                           .sample_id = serving->sample_ids[0],
                           .sample_index = 0,
                           .cells = cell});
  });
  EXPECT_NE(refusal.find("goes on with what was answered"), std::string::npos) << refusal;
}

}  // namespace
}  // namespace kvarena::evaluate
