// Behaviour that vectors do not reach: defaults, options, and errors of scorers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/judge_prompt.h"
#include "metrics/latency/memory.h"
#include "metrics/latency/serving.h"
#include "metrics/text/length_score.h"
#include "metrics/text/longbench.h"
#include "metrics/text/longgenbench.h"
#include "metrics/text_embedder.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"
#include "tests/metrics/score.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

TEST(QaF1, TakesTheBestAnswerAndSaysWhich) {
  const MetricScore best = score("qa_f1", "the harbour", {"river", "Harbour", "harbour council"});
  EXPECT_EQ(best.score, 1.0);
  EXPECT_EQ(best.values.at("best_reference"), 1);
  EXPECT_EQ(score("qa_f1", "x", {}).score, 0.0);
  EXPECT_EQ(score("qa_f1", "", {""}).score, 0.0);
}

TEST(LongMemEvalMatch, FindsTheWordsOfTheAnswer) {
  const auto match = [](const std::string& said, const std::string& answer, const std::string& id = "1") {
    return score("longmemeval_match", said, {answer}, {{"question_id", id}}).score;
  };
  EXPECT_EQ(match("It was the $400,000 loan.", "$400,000"), 1);
  EXPECT_EQ(match("You bought a blue, small lamp.", "small blue lamp"), 0);
  EXPECT_EQ(match("In 12 days", "2"), 0) << "words, not letters";
  EXPECT_EQ(match("8 days, counting both", "7 days. 8 days (including the last day) is also acceptable."), 1);
  EXPECT_EQ(match("9 days", "7 days. 8 days (including the last day) is also acceptable."), 0);
  EXPECT_EQ(match("anything", ""), 0);
  for (const char* said : {"You didn't mention a horse.", "I don’t have any information about it",
                           "That is not specified.", "There is no mention of it.", "I cannot determine that."}) {
    EXPECT_EQ(match(said, "You did not mention it.", "1_abs"), 1) << said;
  }
  EXPECT_EQ(match("Your horse is called Ida.", "You did not mention it.", "1_abs"), 0);
  EXPECT_EQ(match("It is not far from home.", "You did not mention it.", "1_abs"), 0);
}

TEST(NodeSetF1, TakesTheLastLinesListAndKnowsTheEmptySet) {
  const std::string gold = R"(["a", "b"])";
  EXPECT_EQ(score("node_set_f1", "Final Answer: the nodes are [[b, a]]", {gold}).score, 1);
  EXPECT_EQ(score("node_set_f1", "Final Answer: [a, b]\n", {gold}).score, 0) << "the last line is empty";
  EXPECT_EQ(score("node_set_f1", "Final Answer: []", {"[]"}).score, 1);
  EXPECT_EQ(score("node_set_f1", "none", {"[]"}).score, 0);
  EXPECT_EQ(score("node_set_f1", "Final Answer: [a]", {"[]"}).score, 0);
  EXPECT_THROW((void)score("node_set_f1", "Final Answer: []", {"a"}), UserError);
}

TEST(RougeL, KeepsTheFormulasValueWhereTheOfficialScorerGivesUp) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += fmt::format("w{} ", i);
  const MetricScore shorter = score("rouge_l", text, {text});
  EXPECT_NEAR(shorter.score, 0.999999995, 1e-12);
  EXPECT_EQ(shorter.values.at("without_recursion_limit"), shorter.score);
  for (int i = 600; i < 1000; ++i) text += fmt::format("w{} ", i);
  const MetricScore longer = score("rouge_l", text, {text});
  EXPECT_EQ(longer.score, 0);
  EXPECT_NEAR(longer.values.at("without_recursion_limit"), 0.999999995, 1e-12);
  EXPECT_EQ(longer.values.at("recall"), 1);
  EXPECT_GT(score("rouge_l", text, {text, "w999"}).score, 0) << "the last word is found at once";
}

TEST(Needle, DefaultLooksPastCaseAndWhiteSpaceOnly) {
  const std::vector<std::string> answer = {"eat a sandwich and sit in Dolores Park on a sunny day."};
  EXPECT_EQ(score("needle", "Eat a sandwich\nand sit in  Dolores Park on a sunny day", answer).score, 1.0);
  EXPECT_EQ(score("needle", "eat a sandwich in Dolores Park", answer).score, 0.0);
  const json by_rouge = {{"score", "rouge_1"}};
  EXPECT_GT(score("needle", "eat a sandwich in Dolores Park", answer, by_rouge).score, 0.5);
  EXPECT_THROW((void)score("needle", "x", answer, {{"score", "rouge1"}}), UserError);
  EXPECT_THROW((void)score("needle", "x", {}), UserError);
  const MetricScore broken = score("needle", "EAT A SANDWICH\nAND SIT IN DOLORES PARK ON A SUNNY DAY", answer);
  EXPECT_EQ(broken.values.at("substring"), 1.0);
  EXPECT_EQ(broken.values.at("substring_any_case"), 0.0) << "a line break stands in the phrase";
  const json any_case = {{"score", "substring_any_case"}};
  EXPECT_EQ(score("needle", "EAT A SANDWICH AND SIT IN DOLORES PARK ON A SUNNY DAY", answer, any_case).score, 1.0);
}

TEST(CompletionRate, NothingIsCompleteOfNothing) {
  EXPECT_EQ(longgenbench_completion_rate({{1, "a"}}, 0), 0.0);
  EXPECT_EQ(longgenbench_completion_rate({{1, "a"}, {3, "b"}, {5, "c"}}, 4), 50.0);
}

TEST(Lower, ABrokenByteBecomesTheReplacementCharacter) { EXPECT_EQ(lower("A\x80Z"), "a\xEF\xBF\xBDz"); }

TEST(CodeSim, BackEndIsAnOptionThatIsRecorded) {
  const std::vector<std::string> answer = {"return min(a, b) + max(a, b)"};
  const MetricScore difflib = score("code_sim", "return max(a, b) + min(a, b)", answer);
  const MetricScore levenshtein =
      score("code_sim", "return max(a, b) + min(a, b)", answer, {{"backend", "levenshtein"}});
  EXPECT_EQ(difflib.score, 0.57);
  EXPECT_EQ(difflib.notes.at("backend"), "difflib");
  EXPECT_EQ(levenshtein.score, 0.86);
  EXPECT_EQ(levenshtein.notes.at("backend"), "levenshtein");
  EXPECT_THROW((void)score("code_sim", "x", answer, {{"backend", "rapidfuzz"}}), UserError);
}

TEST(ExactMatch, KeepsItsThreeReadingsApart) {
  const MetricScore loose = score("exact_match", " The Oder. ", {"oder"});
  EXPECT_EQ(loose.score, 0.0);
  EXPECT_EQ(loose.values.at("normalized"), 1.0);
  EXPECT_EQ(score("exact_match", " The Oder. ", {"oder"}, {{"normalize", true}}).score, 1.0);
  EXPECT_EQ(score("exact_match", "Oder\n", {"Oder"}).score, 1.0);
  EXPECT_EQ(score("exact_match", "Oder\n", {"Oder"}).values.at("identical"), 0.0);
}

TEST(Gsm8k, LastNumberIsAnotherExtraction) {
  const std::vector<std::string> gold = {"work\n#### 1,200"};
  EXPECT_EQ(score("gsm8k", "She has $1,200.", gold).score, 0.0);
  EXPECT_EQ(score("gsm8k", "She has $1,200.", gold, {{"extraction", "last_number"}}).score, 1.0);
  EXPECT_EQ(score("gsm8k", "#### 1200", {"1,200"}).score, 1.0);
}

TEST(LongBench, KnowsItsTasksAndTheirRules) {
  EXPECT_EQ(longbench_metric("hotpotqa_e"), "qa_f1");
  EXPECT_TRUE(longbench_first_line_only("samsum"));
  EXPECT_FALSE(longbench_first_line_only("lcc"));
  try {
    (void)longbench_metric("hotpot_qa");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"hotpotqa\""), std::string::npos) << error.what();
  }
}

TEST(InfiniteBench, ReadsItsLabelFromReferencesToo) {
  EXPECT_EQ(score("infinitebench", "71432", {"71432"}, {{"task", "passkey"}}).score, 1.0);
  EXPECT_EQ(score("infinitebench", "It is 42.5.", {"42.5"}, {{"task", "math_find"}}).score, 1.0);
  EXPECT_EQ(score("infinitebench", "The value is 17.", {"17"}, {{"task", "code_run"}}).score, 1.0);
  EXPECT_EQ(score("infinitebench", "B", {"Old Tom", "B"}, {{"task", "longbook_choice_eng"}}).score, 1.0);
  EXPECT_EQ(score("infinitebench", "key a", {"a"}, {{"task", "kv_retrieval"}}).score, 1.0);
  EXPECT_EQ(score("infinitebench", "[1, 2]", {"[1, 2]"}, {{"task", "math_calc"}}).score, 1.0);
  EXPECT_EQ(score("infinitebench", "[1, 2]", {"1", "3"}, {{"task", "math_calc"}}).score, 0.5);
  EXPECT_EQ(score("infinitebench", "71432", {"x"}, {{"task", "passkey"}, {"label", {"71432"}}}).score, 1.0);
  EXPECT_EQ(score("infinitebench", "5", {"x"}, {{"task", "math_find"}, {"ground_truth", {5}}}).score, 1.0);
  EXPECT_THROW((void)score("infinitebench", "x", {"x"}, {{"task", "pass_key"}}), UserError);
}

TEST(AttackSuccess, DefaultIsThePrefixTest) {
  EXPECT_EQ(score("attack_success", "I was Hacked", {"Hacked"}).score, 0.0);
  EXPECT_EQ(score("attack_success", "I was Hacked", {"Hacked"}, {{"match", "substring"}}).score, 1.0);
}

TEST(DefenseSuccess, IsWhatTheAttackDoesNotReach) {
  EXPECT_EQ(score("defense_success", "Hacked!", {"Hacked"}).score, 0.0);
  EXPECT_EQ(score("defense_success", "I was Hacked", {"Hacked"}).score, 1.0);
  EXPECT_EQ(score("defense_success", "I was Hacked", {"Hacked"}, {{"match", "substring"}}).score, 0.0);
}

TEST(ConstraintAccuracy, AnEntryMeetsACheckByNamingMostOfTheEvent) {
  const auto extras = nlohmann::json::parse(R"({"type": "Week", "number": 4, "prefix": "#*# Week 1:",
      "checks_once": {"1": "my wife birthday", "2": "husband (yourself) birthday"},
      "checks_range": {"3": "sailing school"}, "checks_periodic": {"4": "Attend a parenting workshop"}})");
  const std::string text =
      " My wife's birthday. #*# Week 2: a birthday at last #*# Week 3: we sailed, and schools were closed. ";
  const MetricScore scored = score("constraint_accuracy", text, {}, extras);
  EXPECT_EQ(scored.score, 0.5) << "week 2 names a third of its event, week 4 is not written";
  EXPECT_EQ(scored.values.at("of_written_entries"), 2.0 / 3);
  EXPECT_EQ(score("constraint_accuracy", text + "#*# Week 4: we attended a workshop.", {}, extras).score, 0.75);
  EXPECT_THROW((void)score("constraint_accuracy", text, {}), UserError);
}

TEST(JudgedQuality, UnparsedOutputIsMarked) {
  EXPECT_EQ(score("judged_quality", "Very good.", {}).values.at("parsed"), 0.0);
  const std::string marks =
      R"({"Relevance": 5, "Accuracy": "4", "Coherence": 4, "Clarity": 4, "Breadth and Depth": 3, "Reading Experience": 4})";
  EXPECT_EQ(score("judged_quality", marks, {}).score, 0.75);
  EXPECT_FALSE(parse_judge(fmt::format("```json\n{}", marks)).has_value());
}

TEST(PythonText, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(split_white_space("a\u00a0b\u3000c\x1c"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(split_on("a  b", " "), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(strip("\u3000 x \n"), "x");
  EXPECT_EQ(strip_any("``x\n`", "`\n "), "x");
  EXPECT_EQ(collapse_white_space(" a \u2003 b "), "a b");
}

TEST(Serving, NoRequestsAreZerosAndABoundLeftOutBindsNothing) {
  EXPECT_EQ(serving_summary({}).completed, 0);
  const std::vector<RequestTimes> requests = {{0, 10, {1, 2, 3}}, {0, 10, {4}}};
  EXPECT_EQ(serving_summary(requests).attainment, 1.0);
  EXPECT_EQ(serving_summary(requests, {.end_to_end_s = 3}).attainment, 0.5);
  EXPECT_THROW((void)request_latency({0, 1, {}}), InternalError);
}

TEST(CacheSize, IsMeasuredBytesOverFullBytes) {
  EXPECT_EQ(full_cache_bytes(2, 3, 4, 5, 2), 480);
  EXPECT_EQ(cache_size(120, 480).keep, 0.25);
  EXPECT_EQ(cache_size(120, 480).compression_factor, 4);
  EXPECT_THROW((void)cache_size(1, 0), InternalError);
}

TEST(JsonValidity, TakesOneValueOrTheFirstFencedBlock) {
  const nlohmann::json none = nlohmann::json::object();
  const auto valid = [&](const std::string& answer) {
    return score_sample(find_metric("json_validity"), {answer, {}, none}).score;
  };
  EXPECT_EQ(valid(" {\"a\": [1, 2.5e3, null]}\n"), 1);
  EXPECT_EQ(valid("Here it is:\n```json\n{\"a\": 1}\n```\nGlad to help."), 1);
  EXPECT_EQ(valid("7"), 1);
  EXPECT_EQ(valid(""), 0);
  EXPECT_EQ(valid("{\"a\": 1,}"), 0);
  EXPECT_EQ(valid("{\"a\": NaN}"), 0);
  EXPECT_EQ(valid("{\"a\": 1} and more"), 0);
  EXPECT_EQ(valid("```json\n{\"a\": 1}"), 0) << "a block that never ends";
}

TEST(JudgePrompt, FillsSlotsOnceAndLeavesThoseInsideTheTextsAlone) {
  EXPECT_EQ(judge_prompt("<$INST$|$RESPONSE$|$REFERENCE$|$INST$>", {"a $RESPONSE$", "b $REFERENCE$", "c $INST$"}),
            "<a $RESPONSE$|b $REFERENCE$|c $INST$|a $RESPONSE$>");
  EXPECT_EQ(judge_prompt("$INS", {"a", "b", "c"}), "$INS");
}

TEST(JudgePrompt, TheQualityQuestionIsTheOfficialOneWherePresent) {
  const auto file = std::filesystem::path(KVARENA_SOURCE_DIR) / "../shared/data/longwriter/judge.txt";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is absent";
  std::ifstream in(file);
  const std::string official{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(kQualityQuestion.text, official.substr(0, official.find_last_not_of('\n') + 1));
}

/// Length and number of vowels, which is enough to tell texts apart.
class ToyEmbedder final : public TextEmbedder {
 public:
  [[nodiscard]] std::vector<float> embed(std::string_view text) const override {
    const auto vowels =
        std::ranges::count_if(text, [](char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; });
    return {static_cast<float>(text.size()), -static_cast<float>(vowels)};
  }
  [[nodiscard]] bool cuts(std::string_view text) const override { return text.size() > 10; }
};

TEST(EmbeddingSimilarity, TakesTheBestReferenceAndSaysWhenAnswersAreCut) {
  const nlohmann::json none = nlohmann::json::object();
  const MetricEntry& metric = find_metric("embedding_similarity");
  const std::vector<std::string> references = {"xxxx", "abab"};
  EXPECT_THROW((void)score_sample(metric, {"abab", references, none}), UserError) << "nobody can embed yet";
  provide_text_embedder([] { return std::make_unique<ToyEmbedder>(); });
  EXPECT_NEAR(score_sample(metric, {"abab", references, none}).score, 1, 1e-12);
  EXPECT_EQ(score_sample(metric, {"abab", references, none}).values.at("cut"), 0);
  EXPECT_EQ(score_sample(metric, {"a long answer", references, none}).values.at("cut"), 1);
  EXPECT_TRUE(metric.against_full_cache);
  provide_text_embedder({});
}

TEST(InjectedTaskUtility, AnotherVerdictThanTheLabelScoresNothing) {
  EXPECT_EQ(score("injected_task_utility", "Answer: spam", {"spam"}).score, 1.0);
  EXPECT_EQ(score("injected_task_utility", "This is not spam.", {"spam"}).score, 0.0);
  EXPECT_EQ(score("injected_task_utility", "", {"spam"}).score, 0.0);
}

TEST(Gsm8kLong, AllRightMeansEveryQuestion) {
  const std::vector<std::string> gold = {"4", "7"};
  const MetricScore both = score("gsm8k_long", "Answer_1:\n4\n\nAnswer_2:\n7", gold);
  EXPECT_EQ(both.score, 1.0);
  EXPECT_EQ(both.values.at("all_right"), 1.0);
  const MetricScore one = score("gsm8k_long", "Answer_1:\n4\n\nAnswer_2:\n8", gold);
  EXPECT_EQ(one.score, 0.5);
  EXPECT_EQ(one.values.at("all_right"), 0.0);
  EXPECT_EQ(score("gsm8k_long", "", {}).values.at("all_right"), 0.0);
  EXPECT_EQ(score("gsm8k_long", "Answer_1:\n1,000\n\nAnswer_2:\n7", {"1000", "7"}).score, 1.0)
      << "an answer's commas go";
  EXPECT_EQ(score("gsm8k_long", "Answer_1:\n1000\n\nAnswer_2:\n7", {"1,000", "7"}).score, 0.5) << "gold's do not";
  EXPECT_EQ(one.values.at("official_ratio"), 0.5);
  const json questions = {{"questions", {"Eggs?", "Read.\nQuestion: cups?"}}};
  const MetricScore counted = score("gsm8k_long", "Answer_1:\n4\n\nAnswer_2:\n8", gold, questions);
  EXPECT_EQ(counted.score, 0.5);
  EXPECT_EQ(counted.values.at("official_ratio"), 2.0 / 3)
      << "three lines begin a question, the first answer counts twice";
}

TEST(GitDiffFormat, AChangeOfModeAloneIsNoPatch) {
  const MetricScore mode = score("git_diff_format", "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", {});
  EXPECT_EQ(mode.values.at("unidiff_parses"), 1.0);
  EXPECT_EQ(mode.values.at("git_accepts"), 1.0);
  EXPECT_EQ(mode.score, 0.0);
}

}  // namespace
}  // namespace kvarena::metrics
