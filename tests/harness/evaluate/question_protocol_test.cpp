// Whether methods see the question: what a workload's entry says, the tokens of a request, and what a cell evaluates.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "datasets/conversation.h"
#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/engine/stored/prefill_folder.h"
#include "harness/evaluate/candidate.h"
#include "harness/evaluate/context_with_queries.h"
#include "harness/evaluate/model_evaluator.h"
#include "harness/evaluate/quality.h"
#include "tests/harness/evaluate/outcome_value.h"
#include "tests/support/decoding.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_blanks.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::evaluate {
namespace {

using experiment::ExperimentConfig;
using experiment::Question;
using nlohmann::json;
using results::CellKind;

class QuestionProtocol : public ::testing::Test {
 protected:
  QuestionProtocol() {
    testing::write_tiny_model(folder_ / "tiny", 3);
    testing::add_blanks(folder_ / "tiny");
  }

  [[nodiscard]] ExperimentConfig config(const json& workload, const json& more = json::object()) const {
    json text = {
        {"name", "tiny"},
        {"models", {{{"name", "tiny"}, {"path", (folder_ / "tiny").string()}}}},
        {"workloads", {workload}},
        {"methods", {"full", {{"name", "snapkv"}, {"keep", 0.25}, {"window", 8}}, {{"name", "h2o"}, {"keep", 0.25}}}},
        {"engine", {{"max_new_tokens", 6}, {"noise_floor", 0}}}};
    text.update(more);
    return experiment::parse_config(text.dump(), "tiny.json", {}, registry_validators());
  }
  [[nodiscard]] ModelEvaluator evaluator(const ExperimentConfig& of) const {
    return {of, {.home = folder_.path(), .data_dir = {}, .hardware = {}}};
  }
  [[nodiscard]] std::string card_of(const json& workload, const json& more = json::object()) const {
    const ExperimentConfig tiny = config(workload, more);
    ModelEvaluator opened = evaluator(tiny);
    return json::parse(opened.protocol_card(tiny.models.front(), tiny.workloads.front(), tiny.methods.front(),
                                            CellKind::quality))
        .at("question");
  }
  [[nodiscard]] std::string refusal_of(const json& workload, const json& more = json::object()) const {
    const ExperimentConfig tiny = config(workload, more);
    ModelEvaluator opened = evaluator(tiny);
    return failure_of(
        [&] { (void)opened.samples(tiny.models.front(), tiny.workloads.front(), CellKind::quality, 100); });
  }
  [[nodiscard]] LoadedModel model(const std::string& chat_template = "none") const {
    return {{.name = "tiny", .path = (folder_ / "tiny").string(), .chat_template = chat_template}, folder_.path(), {}};
  }

  /// Five questions, three of them about the first context.
  [[nodiscard]] static json asked(const std::string& question) {
    return {{"name", "fact_qa"}, {"things", 2},    {"filler", 0},         {"examples", 1},
            {"samples", 5},      {"questions", 3}, {"question", question}};
  }
  [[nodiscard]] experiment::Plan plan_of(const ExperimentConfig& of) const {
    ModelEvaluator planning = evaluator(of);
    return experiment::make_plan(of, planning);
  }
  /// Asked about sample `at`, with the one behind it to come, or as the last.
  [[nodiscard]] static std::vector<experiment::SampleOutcome> evaluated(ModelEvaluator& by,
                                                                        const experiment::Plan& plan, int64_t at,
                                                                        bool last = false) {
    const experiment::CellGroup& group = plan.groups.front();
    std::vector<const experiment::PlannedCell*> cells;
    for (const experiment::PlannedCell& cell : group.cells) cells.push_back(&cell);
    std::vector<int64_t> next;
    if (!last && at + 1 < std::ssize(group.sample_ids)) next.push_back(at + 1);
    return by.evaluate({.model = *group.model,
                        .workload = *group.workload,
                        .kind = CellKind::quality,
                        .sample_id = group.sample_ids[static_cast<size_t>(at)],
                        .sample_index = at,
                        .cells = cells,
                        .next = next});
  }
  [[nodiscard]] static std::vector<datasets::Sample> samples_of(const experiment::Plan& plan, bool turns) {
    const std::string settings = plan.groups.front().workload->settings_json;
    auto reader = datasets::make_workload("fact_qa", settings, "test")->open({.turns = turns});
    std::vector<datasets::Sample> samples;
    while (auto sample = reader.next()) samples.push_back(std::move(*sample));
    return samples;
  }
  /// Three turns of a chat about one context.
  [[nodiscard]] static std::vector<datasets::Sample> chat_turns() {
    datasets::Conversation conversation;
    std::vector<datasets::Sample> samples;
    const std::string context = "The cart stands near the green gate.";
    for (const auto& [question, answer] :
         {std::pair(" Where does it stand?", "near the gate"), std::pair(" Which color has the gate?", "green"),
          std::pair(" What stands there?", "the cart")}) {
      datasets::Sample sample{.id = question,
                              .messages = {{"system", "Answer."}, {"user", context + question}},
                              .answer_prefix = "Answer:",
                              .question = {1, context.size()},
                              .context = "a",
                              .references = {answer}};
      conversation.join(sample);
      samples.push_back(std::move(sample));
    }
    return samples;
  }

  testing::TemporaryFolder folder_;
  const json facts_ = {{"name", "fact_qa"}, {"things", 2}, {"filler", 0}, {"samples", 2}};
};

TEST_F(QuestionProtocol, UnseenIsTheDefaultWhereSamplesSayWhereTheirQuestionStarts) {
  json facts = facts_;
  EXPECT_EQ(card_of(facts), "unseen");
  const json templated = {{{"name", "tiny"}, {"path", (folder_ / "tiny").string()}, {"template", "plain"}}};
  EXPECT_EQ(card_of("longbench/qasper", {{"models", templated}}), "unseen");
  EXPECT_EQ(card_of("longbench-write-en", {{"models", templated}}), "seen");
  for (const char* question : {"seen", "unseen"}) {
    facts["question"] = question;
    EXPECT_EQ(card_of(facts), question);
  }
  EXPECT_EQ(refusal_of(facts), "");
}

TEST_F(QuestionProtocol, WhatCannotBeUnseenIsRefusedInWords) {
  const std::string refusal = refusal_of({{"name", "longbench-write-en"}, {"question", "unseen"}});
  for (const char* part : {"longbench-write-en", "does not say where its question starts", "\"question\": \"seen\""})
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
  json facts = facts_;
  facts["question"] = "asked";
  const std::string unknown = failure_of([&] { (void)config(facts); });
  EXPECT_NE(unknown.find("workloads[0].question"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("seen, unseen, turns or first_seen"), std::string::npos) << unknown;
  facts["question"] = "seen";
  const std::string stored = refusal_of(facts, {{"serving", {{"load", {0.5}}}}, {"contexts", json::object()}});
  EXPECT_NE(stored.find("stored without the questions"), std::string::npos) << stored;
}

TEST_F(QuestionProtocol, APlanSaysItAndCellsOfBothAreOthers) {
  const json both = {{"name", "fact_qa"},
                     {"things", 2},
                     {"filler", 0},
                     {"samples", 2},
                     {"label", "facts, {question}"},
                     {"matrix", {{"question", {"seen", "unseen"}}}}};
  ExperimentConfig tiny = config(both);
  ModelEvaluator opened = evaluator(tiny);
  const experiment::Plan plan = experiment::make_plan(std::move(tiny), opened);
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.groups[0].workload->label, "facts, seen");
  EXPECT_NE(plan.groups[0].cells[0].record.protocol_sha256, plan.groups[1].cells[0].record.protocol_sha256);
  const std::string text = describe_plan(plan, nullptr);
  EXPECT_NE(text.find("facts, seen, quality: 2 samples; question seen"), std::string::npos) << text;
  EXPECT_NE(text.find("facts, unseen, quality: 2 samples; question unseen"), std::string::npos) << text;
}

TEST_F(QuestionProtocol, ContextAndQuestionAreTokenisedApart) {
  LoadedModel tiny = model();
  const std::string text = "The cart stands near the green gate. Where does it stand?";
  datasets::Sample sample{.id = "s", .messages = {{"user", text}}, .chat_template = false};
  const Tokenizer& tokenizer = *tiny.opened().tokenizer;
  const Request seen = tiny.request(sample, {}, {}, Question::seen);
  EXPECT_EQ(seen.prompt, tokenizer.encode(text));
  EXPECT_TRUE(seen.question.empty());
  for (size_t byte = 1; byte < text.size(); ++byte) {  // wherever a token would straddle it
    sample.question = {0, byte};
    const Request unseen = tiny.request(sample, {}, {}, Question::unseen);
    EXPECT_EQ(unseen.prompt, tokenizer.encode(text.substr(0, byte)));
    EXPECT_EQ(unseen.question, tokenizer.encode(text.substr(byte), {.add_special = false}));
    EXPECT_EQ(tokenizer.decode(unseen.prompt) + tokenizer.decode(unseen.question), text) << byte;
    EXPECT_EQ(unseen.layout.text, text.substr(0, byte));
    EXPECT_EQ(unseen.layout.ranges.size(), unseen.prompt.size());
    EXPECT_FALSE(unseen.layout.question);
    EXPECT_EQ(tiny.request(sample, {}, {}, Question::seen).prompt, seen.prompt);
  }
  for (const size_t byte : {size_t{0}, text.size()}) {
    sample.question = {0, byte};
    EXPECT_THROW((void)tiny.request(sample, {}, {}, Question::unseen), UserError) << byte;
  }
}

TEST_F(QuestionProtocol, QuestionsOfAFileReplaceTheSamplesOwn) {
  LoadedModel tiny = model();
  const std::string context = "The cart stands near the green gate, and the bell above the gate.";
  const datasets::Sample sample{.id = "s",
                                .messages = {{"user", context + "\n\nWhere does it stand?"}},
                                .chat_template = false,
                                .question = {.message = 0, .byte = context.size()}};
  const experiment::ContextSettings settings{.train_questions = 1, .test_questions = 2};
  const auto tested = [&](datasets::ContextQuestions given) {
    const ContextWithQueries asked = ask_about(tiny, sample, {}, settings, &given);
    EXPECT_EQ(tiny.opened().tokenizer->decode(asked.tokens), context + "\n\nWh");
    std::vector<std::string> ends;
    for (const Request& request : asked.test) ends.push_back(request.layout.text.substr(context.size() + 2));
    return ends;
  };
  EXPECT_EQ(tested({.train = {"What stands?"}, .test = {"What is green?", "What hangs?", "What else?"}}),
            (std::vector<std::string>{"What is green?", "What hangs?"}));
  EXPECT_EQ(tested({.train = {"What stands?"}}), std::vector<std::string>{"Where does it stand?"});
}

TEST_F(QuestionProtocol, AChatTemplateStandsOnBothSides) {
  LoadedModel tiny = model("chatml");
  const datasets::Sample sample{.id = "s",
                                .messages = {{"system", "Tools: add, call."}, {"user", "Add one and two."}},
                                .answer_prefix = "Call:",
                                .question = {.message = 1, .byte = 0}};
  const Request unseen = tiny.request(sample, {}, {}, Question::unseen);
  const Request seen = tiny.request(sample, {}, {}, Question::seen);
  EXPECT_TRUE(unseen.layout.text.ends_with("user\n")) << unseen.layout.text;
  const std::string rest = seen.layout.text.substr(unseen.layout.text.size());
  EXPECT_TRUE(rest.starts_with("Add one and two.") && rest.ends_with("Call:")) << rest;
  EXPECT_EQ(unseen.question, tiny.opened().tokenizer->encode(rest, {.add_special = false}));
}

TEST_F(QuestionProtocol, PromptsThatAreFoundOnTheDiskChangeNoResult) {
  LoadedModel loaded = model();
  const std::vector<datasets::Sample> samples = samples_of(plan_of(config(asked("unseen"))), false);
  const Request request = loaded.request(samples.front(), {.max_new_tokens = 6}, {"qa_f1"}, Question::unseen);
  std::vector<EvaluatedMethod> methods;
  for (const json& spec : {json{{"name", "full"}}, json{{"name", "snapkv"}, {"keep", 0.25}, {"window", 8}},
                           json{{"name", "h2o"}, {"keep", 0.25}}, json{{"name", "kivi"}}}) {
    methods.push_back({.method = make_method(spec, "test"), .reference = spec["name"] == "full"});
  }
  const auto expected = evaluate_quality(loaded.transformer(), request, methods);
  const PrefillFolder prefills(folder_.path() / "prefills", "here", int64_t{1} << 30, /*least_seconds=*/0);
  for (const char* turn : {"written", "found"}) {
    const auto outcomes = evaluate_quality(loaded.transformer(), request, methods, nullptr, &prefills);
    for (size_t i = 0; i < methods.size(); ++i) {
      const results::SampleResult &before = expected[i].result, &after = outcomes[i].result;
      EXPECT_EQ(outcomes[i].failure, "") << turn;
      EXPECT_EQ(after.prediction, before.prediction) << turn;
      EXPECT_EQ(after.activity_json, before.activity_json) << turn;
      EXPECT_EQ(after.peak_bytes, before.peak_bytes) << turn;
      ASSERT_EQ(after.values.size(), before.values.size()) << turn;
      for (const results::MetricValue& value : before.values) {
        const double found = value_of(outcomes[i], value.metric);
        EXPECT_TRUE(found == value.value || (std::isnan(found) && std::isnan(value.value))) << turn << value.metric;
      }
      ASSERT_EQ(after.series.size(), before.series.size()) << turn;
      for (size_t at = 0; at < before.series.size(); ++at) {
        EXPECT_EQ(after.series[at].values, before.series[at].values) << turn << " " << before.series[at].name;
      }
    }
  }
}

TEST(FullBytes, AreThoseThatFullKvHoldsWhateverOthersAskOfThePrompt) {
  ModelConfig config = testing::tiny_config();
  config.layers = 3;
  config.sliding_window = 96;
  config.sliding_layers = {true, false, true};
  Transformer model = testing::tiny_model(1, {}, config);
  const Prefill whole = prefill(model, testing::tiny_prompt(700), {.sliding = true});
  const Prefill seen = prefill(model, testing::tiny_prompt(700), {.sliding = false});
  EXPECT_GT(whole.cache.bytes(), seen.cache.bytes());
  EXPECT_EQ(full_bytes(whole), seen.cache.bytes());
  EXPECT_EQ(full_bytes(seen), seen.cache.bytes());
  EXPECT_EQ(full_bytes(whole), testing::decode(model, whole, {{"name", "full"}}, 1).resident_bytes);
}

TEST_F(QuestionProtocol, CellsAnswerAsTheirProtocolSays) {
  for (const Question question : experiment::kQuestions) {
    const ExperimentConfig tiny = config(asked(name(question)));
    const experiment::Plan plan = plan_of(tiny);
    ModelEvaluator opened = evaluator(tiny);
    opened.begin_model(*plan.groups.front().model, tiny.engine);
    LoadedModel loaded = model();
    Transformer& weights = loaded.transformer();
    const std::vector<datasets::Sample> samples = samples_of(plan, in_turns(question));
    ASSERT_EQ(samples.size(), 5U);
    for (int64_t at = 0; at < std::ssize(samples); ++at) {
      const auto outcomes = evaluated(opened, plan, at);
      const Request request = loaded.request(samples[at], tiny.engine, {}, question);
      const bool all_seen = question == Question::seen || (question == Question::first_seen && at % 3 == 0);
      EXPECT_EQ(request.question.empty(), all_seen);
      for (size_t i = 0; i < outcomes.size(); ++i) {
        const experiment::PlannedCell& cell = plan.groups.front().cells[i];
        json spec = json::parse(cell.record.settings_json);
        spec["name"] = cell.record.method_name;
        SessionOptions options{.stop = request.stop, .question = request.question};
        const auto method = make_method(spec, "test");
        const Prefill prompt = prefill(weights, request.prompt, method->needs(), kPrefillChunk, request.facts);
        const auto decoded = testing::decode(weights, prompt, spec, 6, std::move(options));
        ASSERT_EQ(outcomes[i].failure, "");
        EXPECT_EQ(outcomes[i].result.prediction, answer_text(request, decoded.tokens)) << spec;
        EXPECT_EQ(outcomes[i].result.prompt_tokens, request.asked_tokens());
        EXPECT_EQ(value_of(outcomes[i], "resident_bytes"), static_cast<double>(decoded.resident_bytes));
      }
    }
  }
}

/// Compares an evaluator that goes on with one that begins anew, at each question about one context.
TEST_F(QuestionProtocol, ASampleSaysTheSameAfterTheOthersOfItsContextAndAlone) {
  for (const Question question : {Question::unseen, Question::turns, Question::first_seen}) {
    const ExperimentConfig tiny = config(asked(name(question)));
    const experiment::Plan plan = plan_of(tiny);
    ModelEvaluator goes_on = evaluator(tiny);
    goes_on.begin_model(*plan.groups.front().model, tiny.engine);
    for (int64_t at = 0; at < 5; ++at) {
      ModelEvaluator anew = evaluator(tiny);
      anew.begin_model(*plan.groups.front().model, tiny.engine);
      const auto one = evaluated(goes_on, plan, at), other = evaluated(anew, plan, at);
      for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_EQ(one[i].result.prediction, other[i].result.prediction);
        EXPECT_EQ(one[i].result.peak_bytes, other[i].result.peak_bytes);
        EXPECT_EQ(one[i].result.activity_json, other[i].result.activity_json);
        for (const char* metric : {"qa_f1", "kl_nats", "resident_bytes", "first_divergence"}) {
          const double a = value_of(one[i], metric), b = value_of(other[i], metric);
          EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << metric << ": " << a << " and " << b;
        }
      }
    }
  }
}

TEST_F(QuestionProtocol, WhatMethodsMadeIsHeldWhileOtherSamplesAskAboutTheContext) {
  const ExperimentConfig tiny = config(asked("unseen"));
  const experiment::Plan plan = plan_of(tiny);
  ModelEvaluator opened = evaluator(tiny);
  opened.begin_model(*plan.groups.front().model, tiny.engine);
  const auto held_after = [&](int64_t at, bool last) {
    (void)evaluated(opened, plan, at, last);
    return MemoryLedger::process().current();
  };
  const int64_t prompt = held_after(3, /*last=*/true), all = held_after(0, /*last=*/false);
  EXPECT_GT(all, prompt + prompt / 2);
  EXPECT_EQ(held_after(2, /*last=*/true), all) << "the same context";
  EXPECT_LT(held_after(4, /*last=*/true), prompt + prompt / 2) << "another one";
}

TEST_F(QuestionProtocol, TurnsFollowTheCompressedContextAsOneConversation) {
  const ExperimentConfig tiny = config(asked("turns"));
  const experiment::Plan plan = plan_of(tiny);
  for (const char* chat_template : {"none", "chatml"}) {
    LoadedModel loaded = model(chat_template);
    std::vector<datasets::Sample> samples = samples_of(plan, /*turns=*/true);
    if (chat_template != std::string("none")) samples = chat_turns();
    std::vector<Request> turns, first_seen;
    for (const datasets::Sample& sample : samples) {
      turns.push_back(loaded.request(sample, {}, {}, Question::turns));
      first_seen.push_back(loaded.request(sample, {}, {}, Question::first_seen));
    }
    const Tokenizer& tokenizer = *loaded.opened().tokenizer;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(turns[i].prompt, turns[0].prompt) << "one context";
      std::vector<int32_t> whole = turns[0].prompt;
      whole.insert(whole.end(), turns[0].question.begin(), turns[0].question.end());
      EXPECT_EQ(tokenizer.decode(first_seen[i].prompt), tokenizer.decode(whole)) << "and its first question";
      EXPECT_EQ(first_seen[i].prompt, first_seen[0].prompt);
      if (i == 0) continue;
      // The turns before stay in the cache, and the reference answer of the last.
      const std::vector<int32_t>& before = turns[i - 1].question;
      ASSERT_GT(turns[i].question.size(), before.size());
      EXPECT_TRUE(std::equal(before.begin(), before.end(), turns[i].question.begin()));
      const std::string added = tokenizer.decode(std::span(turns[i].question).subspan(before.size()));
      EXPECT_TRUE(added.starts_with(" " + samples[i - 1].references[0])) << added;
    }
    // Full KV, turn after turn, answers as on one prompt that holds the same tokens.
    Transformer& weights = loaded.transformer();
    std::vector<int32_t> conversation = turns[2].prompt;
    conversation.insert(conversation.end(), turns[2].question.begin(), turns[2].question.end());
    const json full = {{"name", "full"}};
    const auto whole = testing::decode(weights, prefill(weights, conversation, {}), full, 6);
    const auto after =
        testing::decode(weights, prefill(weights, turns[2].prompt, {}), full, 6, {.question = turns[2].question});
    EXPECT_EQ(after.logits, whole.logits);
  }
}

/// Tokens with something of what the text tells behind "Result: ", up to the line's end, and else nothing but blanks,
/// found by reading it again.
std::vector<std::pair<int64_t, int64_t>> read_results(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  const auto bytes = [&](size_t count) {
    return tokenizer.decode(std::span(tokens).first(count), {.skip_special = false}).size();
  };
  const std::string text = tokenizer.decode(tokens, {.skip_special = false}), mark = "Result: ";
  std::vector<std::pair<int64_t, int64_t>> results;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const size_t begin = at + mark.size(), end = text.find('\n', begin);
    std::pair<int64_t, int64_t> result = {0, 0};
    for (size_t i = 0; i < tokens.size(); ++i) {
      bool some = false, others = false;
      for (size_t byte = bytes(i); byte < bytes(i + 1); ++byte) {
        const bool inside = byte >= begin && byte < end;
        some = some || inside;
        others = others || (!inside && text[byte] != ' ' && text[byte] != '\n');
      }
      if (!some || others) continue;
      if (result.second == 0) result.first = static_cast<int64_t>(i);
      result.second = static_cast<int64_t>(i) + 1;
    }
    if (result.second > 0) results.push_back(result);
  }
  return results;
}

TEST_F(QuestionProtocol, ResultsOfToolsAreTokensOfPromptAndQuestion) {
  for (const auto& [style, chat_template] : {std::pair("completion", "none"), std::pair("chat", "chatml")}) {
    LoadedModel loaded = model(chat_template);
    const json settings = {{"style", style}, {"samples", 1}, {"turns", 4}, {"live", 3}};
    datasets::Sample sample = *datasets::make_workload("tool_loop", settings.dump(), "test")->open({}).next();
    for (const std::vector<std::string>& answers :
         {std::vector<std::string>{}, {R"(find(name="nobody"))"}, {R"(find(name="nobody"))", "what"}}) {
      if (!answers.empty()) {
        const datasets::LiveReply reply = sample.live.reply(answers);
        datasets::add_turn(sample, answers.back(), reply.message, reply.results);
      }
      for (const Question question : {Question::seen, Question::unseen}) {
        const Request request = loaded.request(sample, {}, {}, question);
        std::vector<int32_t> tokens = request.prompt;
        tokens.insert(tokens.end(), request.question.begin(), request.question.end());
        std::vector<std::pair<int64_t, int64_t>> found;
        for (const ResultTokens& result : request.layout.results) found.emplace_back(result.begin, result.end);
        EXPECT_EQ(found, read_results(*loaded.opened().tokenizer, tokens)) << style;
        EXPECT_GE(found.size(), 4 + answers.size());
        EXPECT_EQ(session_options(request).results.size(), found.size());
      }
    }
    EXPECT_EQ(sample.results.back().tool, "");
  }
}

TEST_F(QuestionProtocol, ResultsHaveBlanksBesideThemAndAreMessagesOfTheirRole) {
  LoadedModel plain = model(), chat = model("chatml");
  const datasets::Sample gate{.id = "s",
                              .messages = {{"user", "Result: gate\n\nRequest: where?"}},
                              .chat_template = false,
                              .results = {{.message = 0, .begin = 8, .end = 12, .tool = "find"}}};
  const datasets::Sample looked{
      .id = "t", .messages = {{"system", "Tools."}, {"user", "Where?"}, {"assistant", "look()"}, {"tool", "room 7"}}};
  const auto told = [](LoadedModel& by, const datasets::Sample& sample) {
    std::vector<std::pair<std::string, std::string>> results;
    const Request request = by.request(sample, {}, {}, Question::seen);
    for (const auto& [begin, end, tool] : request.layout.results) {
      const auto tokens = std::span(request.prompt).first(static_cast<size_t>(end)).subspan(static_cast<size_t>(begin));
      results.emplace_back(tool, by.opened().tokenizer->decode(tokens));
    }
    return results;
  };
  using Told = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(told(plain, gate), (Told{{"find", " gate"}})) << "a blank that its token has";
  EXPECT_EQ(told(chat, looked), (Told{{"", "room 7"}}));
}

TEST_F(QuestionProtocol, TurnsNeedSeveralQuestionsAboutAContext) {
  for (const char* question : {"turns", "first_seen"}) {
    json facts = facts_;
    facts["question"] = question;
    const std::string refusal = refusal_of(facts);
    for (const char* part : {"one question about its context", question, "more \"questions\""}) {
      EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
    }
    EXPECT_EQ(refusal_of(asked(question)), "");
    EXPECT_EQ(card_of(asked(question)), question);
  }
}

}  // namespace
}  // namespace kvarena::evaluate
