// Whether methods see the question: what a workload's entry says, the tokens of a request, and what a cell evaluates.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/core/files.h"
#include "harness/evaluate/model_evaluator.h"
#include "tests/support/decoding.h"
#include "tests/support/temporary_folder.h"
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
    // Blanks, line breaks and longer tokens, in the place of letters that no text here has.
    json tokenizer = json::parse(read_file(folder_ / "tiny" / "tokenizer.json"));
    json& model = tokenizer["model"];
    const std::vector<std::string> pieces = {"Ġ", "Ċ", "ga", "te", "gate", "Ġgate"};
    std::vector<std::string> letters;
    for (const auto& [letter, id] : model["vocab"].items()) {
      if (id >= 128 - std::ssize(pieces)) letters.push_back(letter);
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      model["vocab"][pieces[i]] = model["vocab"][letters[i]];
      model["vocab"].erase(letters[i]);
    }
    model["merges"] = {"g a", "t e", "ga te", "Ġ gate"};
    write_file(folder_ / "tiny" / "tokenizer.json", tokenizer.dump());
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
  EXPECT_NE(unknown.find("seen or unseen"), std::string::npos) << unknown;
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

TEST_F(QuestionProtocol, CellsAnswerAsTheirProtocolSays) {
  for (const Question question : {Question::seen, Question::unseen}) {
    json facts = facts_;
    facts["question"] = name(question);
    ExperimentConfig tiny = config(facts);
    const experiment::Plan plan = [&] {
      ModelEvaluator planning = evaluator(tiny);
      return experiment::make_plan(tiny, planning);
    }();
    ModelEvaluator opened = evaluator(tiny);
    const experiment::CellGroup& group = plan.groups.front();
    std::vector<const experiment::PlannedCell*> cells;
    for (const experiment::PlannedCell& cell : group.cells) cells.push_back(&cell);
    opened.begin_model(*group.model, tiny.engine);
    const auto outcomes = opened.evaluate({.model = *group.model,
                                           .workload = *group.workload,
                                           .kind = CellKind::quality,
                                           .sample_id = group.sample_ids[1],
                                           .sample_index = 1,
                                           .cells = cells});
    auto reader = datasets::make_workload("fact_qa", group.workload->settings_json, "test")->open({});
    (void)reader.next();
    const datasets::Sample sample = *reader.next();
    LoadedModel loaded = model();
    const Request request = loaded.request(sample, tiny.engine, {}, question);
    EXPECT_EQ(request.question.empty(), question == Question::seen);
    for (size_t i = 0; i < cells.size(); ++i) {
      json spec = json::parse(cells[i]->record.settings_json);
      spec["name"] = cells[i]->record.method_name;
      SessionOptions options{.stop = request.stop, .question = request.question};
      const auto method = make_method(spec, "test");
      Transformer& weights = loaded.transformer();
      const Prefill prompt = prefill(weights, request.prompt, method->needs(), kPrefillChunk, request.facts);
      const auto decoded = testing::decode(weights, prompt, spec, 6, std::move(options));
      ASSERT_EQ(outcomes[i].failure, "");
      EXPECT_EQ(outcomes[i].result.prediction, answer_text(request, decoded.tokens)) << spec;
      EXPECT_EQ(outcomes[i].result.prompt_tokens, request.asked_tokens());
      for (const results::MetricValue& value : outcomes[i].result.values) {
        if (value.metric != "resident_bytes") continue;
        EXPECT_EQ(value.value, static_cast<double>(decoded.resident_bytes));
      }
    }
  }
}

}  // namespace
}  // namespace kvarena::evaluate
