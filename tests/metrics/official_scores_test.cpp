// Scores beside what official code gives the same answers (tests/golden).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "metrics/algorithms/code_functions.h"
#include "metrics/algorithms/english_sentences.h"
#include "metrics/algorithms/math_answers.h"
#include "metrics/judge_prompt.h"
#include "metrics/unicode/python_text.h"
#include "tests/metrics/ifeval_support.h"
#include "tests/metrics/score.h"
#include "tests/support/compared.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

TEST(NodeSetF1, IsThatOfLmEvaluationHarness) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_graphwalks.json";
  const json rows = json::parse(std::ifstream(vectors));
  ASSERT_GT(rows.size(), 100);
  testing::compared_scores("node_set_f1", rows.size());
  for (const json& row : rows)
    EXPECT_NEAR(score("node_set_f1", row["prediction"], {row["nodes"].dump()}).score, row["f1"].get<double>(), 1e-12)
        << row;
}

const json& scbench_answers() {
  static const json kAnswers =
      json::parse(std::ifstream(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_scbench.json"));
  return kAnswers;
}

TEST(ScBench, ScoresAsItsAuthorsCode) {
  std::map<std::string, int> scored;
  for (const json& row : scbench_answers()["answers"]) {
    json extras = {{"task", row["task"]}, {"label", row.value("label", json())}};
    if (row["task"] == "repoqa") {
      extras["functions"] = scbench_answers()["functions"][row["language"].get<std::string>()];
      for (const char* member : {"language", "name"}) extras[member] = row[member];
    }
    EXPECT_NEAR(score("scbench", row["prediction"], {}, extras).score, row["score"].get<double>(), 1e-12) << row;
    ++scored[row["task"]];
  }
  EXPECT_EQ(scored.size(), 11u);
  testing::compared_scores("scbench", scbench_answers()["answers"].size());
  for (const auto& [task, count] : scored) EXPECT_GE(count, 20) << task;
  EXPECT_THROW((void)score("scbench", "x", {}, {{"task", "novel"}, {"label", "x"}}), UserError);
  EXPECT_THROW((void)score("scbench", "x", {"x"}, {{"task", "kv"}}), UserError);
}

TEST(ZeroScrolls, ScoresAsItsAuthorsCode) {
  const json fixture =
      json::parse(std::ifstream(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_zero_scrolls.json"));
  ASSERT_GT(fixture["scores"].size(), 200U);
  testing::compared_scores("zero_scrolls", fixture["scores"].size());
  for (const json& row : fixture["scores"]) {
    const MetricScore made = score("zero_scrolls", row[1], row[2], {{"task", row[0]}});
    if (!row[3].is_array()) {
      EXPECT_NEAR(made.score, row[3].get<double>(), 1e-12) << row;
      continue;
    }
    EXPECT_NEAR(made.score, row[3][0].get<double>(), 1e-12) << row;
    EXPECT_NEAR(made.values.at("zero_scrolls_rouge_1"), row[3][1].get<double>(), 1e-12) << row;
    EXPECT_NEAR(made.values.at("zero_scrolls_rouge_2"), row[3][2].get<double>(), 1e-12) << row;
    EXPECT_NEAR(made.values.at("zero_scrolls_rouge_l"), row[3][3].get<double>(), 1e-12) << row;
  }
  EXPECT_THROW((void)score("zero_scrolls", "x", {"x"}, {{"task", "novel"}}), UserError);
}

TEST(Helmet, ScoresAsItsAuthorsCode) {
  SKIP_WITHOUT(punkt_folder());
  const json fixture =
      json::parse(std::ifstream(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_helmet.json"));
  ASSERT_GT(fixture["scores"].size(), 300U);
  std::map<std::string, size_t> scored;
  for (const json& row : fixture["scores"]) {
    const char* metric = row["task"] == "asqa" || row["task"] == "qampari" ? "alce" : "helmet";
    ++scored[metric];
    const MetricScore made = score(metric, row["prediction"], row["references"], row);
    EXPECT_NEAR(made.score, row["score"].get<double>(), 1e-12) << row;
    for (const auto& [key, value] : made.values) {
      const std::string name = key.starts_with("alce_") ? key.substr(5) : key;
      if (row.contains(name)) {
        EXPECT_NEAR(value, row[name].get<double>(), 1e-12) << name << " " << row;
      }
    }
  }
  for (const auto& [metric, count] : scored) testing::compared_scores(metric, count);
  EXPECT_THROW((void)score("helmet", "x", {"x"}, {{"task", "novel"}}), UserError);
  EXPECT_THROW((void)score("helmet", "x", {"x"}, {{"task", "rerank"}}), UserError);
  EXPECT_THROW((void)score("alce", "x", {"x"}, {{"task", "asqa"}}), UserError);
}

TEST(ScBench, FindsTheFunctionOfAnAnswerThatTreeSitterFinds) {
  for (const json& row : scbench_answers()["answers"]) {
    if (row["task"] != "repoqa") continue;
    const auto answer = row["prediction"].get<std::string>();
    EXPECT_EQ(split_white_space(code_of_answer(answer, row["language"].get<std::string>())),
              split_white_space(row["code"].get<std::string>()))
        << answer;
  }
}

TEST(Contains, IsTheRuleOfNoLiMasEvaluation) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_nolima.json";
  const json fixture = json::parse(std::ifstream(vectors));
  ASSERT_GE(fixture["verdicts"].size(), 7u);
  testing::compared_scores("contains", fixture["verdicts"].size());
  for (const json& row : fixture["verdicts"])
    EXPECT_EQ(score("contains", row[0], {fixture["gold"]}).score, row[1].get<double>()) << row;
}

TEST(LooGle, ScoresAsItsAuthorsCode) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_loogle.json";
  const json fixture = json::parse(std::ifstream(vectors));
  ASSERT_GE(fixture["texts"].size(), 50u);
  ASSERT_GE(fixture["clozes"].size(), 20u);
  testing::compared_scores("loogle", fixture["texts"].size());
  testing::compared_scores("loogle_cloze", fixture["clozes"].size());
  for (const json& row : fixture["texts"]) {
    const MetricScore found = score("loogle", row["prediction"], {row["reference"]});
    EXPECT_NEAR(found.score, row["rouge"][2].get<double>(), 1e-12) << row;
    EXPECT_NEAR(found.values.at("rouge_1_recall"), row["rouge"][0].get<double>(), 1e-12) << row;
    EXPECT_NEAR(found.values.at("rouge_2_recall"), row["rouge"][1].get<double>(), 1e-12) << row;
    EXPECT_NEAR(found.values.at("bleu_1"), row["bleu"][0].get<double>(), 1e-12) << row;
    EXPECT_NEAR(found.values.at("bleu_4"), row["bleu"][1].get<double>(), 1e-12) << row;
  }
  for (const json& row : fixture["clozes"]) {
    const MetricScore found = score("loogle_cloze", row["prediction"], {fixture["masks"].dump()});
    EXPECT_NEAR(3 * found.score, row["exact"].get<double>(), 1e-12) << row;
    EXPECT_NEAR(3 * found.values.at("partial_match"), row["partial"].get<double>(), 1e-12) << row;
  }
  EXPECT_THROW((void)score("loogle_cloze", "{}", {"Bob"}), UserError);
}

TEST(MultipleChoice, FindsTheLetterThatLmEvaluationHarnessFinds) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_multiple_choice.json";
  const json rows = json::parse(std::ifstream(vectors));
  ASSERT_GE(rows.size(), 200u);
  testing::compared_scores("multiple_choice", rows.size());
  for (const json& row : rows) {
    const MetricScore found = score("multiple_choice", row["prediction"], {"B"}, {{"choices", row["choices"]}});
    EXPECT_EQ(found.notes.at("answer"), row["letter"].get<std::string>()) << row;
    EXPECT_EQ(found.score, row["letter"] == "B" ? 1 : 0) << row;
  }
  EXPECT_THROW((void)score("multiple_choice", "B", {"B"}), UserError);
}

TEST(LongHealth, FindsTheLetterThatItsCodeFinds) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_multiple_choice.json";
  const json rows = json::parse(std::ifstream(vectors))["longhealth_answers"];
  ASSERT_GE(rows.size(), 9u);
  testing::compared_scores("longhealth", rows.size());
  for (const json& row : rows) EXPECT_EQ(score("longhealth", row[0], {"B"}).score, row[1].get<bool>() ? 1 : 0) << row;
}

TEST(LoCoMo, ScoresAsItsAuthorsCode) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_locomo.json";
  const json fixture = json::parse(std::ifstream(vectors));
  ASSERT_GE(fixture["scores"].size(), 1000U);
  testing::compared_scores("locomo", fixture["scores"].size());
  for (const json& row : fixture["scores"]) {
    const json extras = {{"category", row[0]}, {"options", fixture["options"]}};
    EXPECT_NEAR(score("locomo", row[1], {row[2]}, extras).score, row[3], 1e-12) << row;
  }
  EXPECT_THROW((void)score("locomo", "x", {"x"}), UserError);
}

TEST(LongProc, ScoresAsItsAuthorsCode) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_longproc.json";
  std::map<std::string, size_t> scored;
  size_t compared = 0;
  for (const json& problem : json::parse(std::ifstream(vectors))) {
    scored[problem["task"]] += problem["answers"].size();
    if (problem["task"] == "pseudo_to_code") continue;  // whose answers are run: tests/datasets/longproc_test.cpp
    compared += problem["answers"].size();
    for (const json& row : problem["answers"]) {
      const MetricScore found = score("longproc", row[0], {problem["reference"]}, problem);
      const json official = row[1].is_null() ? json{{"accuracy", 0.0}} : row[1];  // an answer at which it raises
      const double whole = official.value("accuracy", official.value("f1", -1.0));
      EXPECT_NEAR(found.score, whole, 1e-12) << problem["task"] << row;
      if (row[1].is_null()) continue;
      EXPECT_NEAR(found.values.at("longproc_partial"), official.value("partial_accuracy", whole), 1e-12)
          << problem["task"] << row;
      EXPECT_EQ(found.values.at("longproc_extracted"), official["extraction_rate"].get<double>()) << row;
    }
  }
  testing::compared_scores("longproc", compared);
  EXPECT_EQ(scored.size(), 6U);
  for (const auto& [task, count] : scored) EXPECT_GE(count, 20U) << task;
  const json code = {{"task", "pseudo_to_code"}};
  EXPECT_EQ(score("longproc", R"({"valid": true, "extracted": true})", {"x"}, code).score, 1);
  EXPECT_EQ(score("longproc", R"({"valid": false, "extracted": true})", {"x"}, code).values.at("longproc_extracted"),
            1);
  EXPECT_THROW((void)score("longproc", "```cpp\nint main() {}\n```", {"x"}, code), UserError) << "nothing ran";
  EXPECT_THROW((void)score("longproc", "x", {"x"}, {{"task", "countdown_2k"}}), UserError);
  EXPECT_THROW((void)score("longproc", "<Solution></Solution>", {"x"}, {{"task", "countdown"}}), UserError);
}

const json& longmemeval() {
  static const json kFixture =
      json::parse(std::ifstream(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_longmemeval.json"));
  return kFixture;
}

TEST(JudgedLongMemEval, AsksAndReadsAsItsAuthorsCode) {
  const JudgeQuestion& question = *find_metric("judged_longmemeval").judge;
  ASSERT_GE(longmemeval()["judged"].size(), 100U);
  testing::compared_scores("judged_longmemeval", longmemeval()["judged"].size());
  for (const json& row : longmemeval()["judged"]) {
    const json& told = longmemeval()["rows"][row[0].get<std::string>()];
    const std::string request = judge_request(question, told), reference = judge_reference(question, told, {});
    const auto response = row[1].get<std::string>();
    EXPECT_EQ(sha256(judge_prompt(question.text, {request, response, reference})).substr(0, 12),
              row[2].get<std::string>())
        << told;
    EXPECT_EQ(score("judged_longmemeval", row[3], {}).score, row[4].get<bool>() ? 1 : 0) << row;
    EXPECT_EQ(score("judged_longmemeval", row[3], {}).values.at("parsed"), row[3] == "" ? 0 : 1) << row;
  }
  EXPECT_THROW((void)judge_request(question, {{"question_id", "1"}, {"question_type", "multi-session"}}), UserError);
}

TEST(BabiLong, FindsWhatTheAuthorsCodeFinds) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_babilong.json";
  const json rows = json::parse(std::ifstream(vectors));
  ASSERT_GE(rows.size(), 100);
  testing::compared_scores("babilong", rows.size());
  for (const json& row : rows) {
    const json extras = {{"question", row["question"]}, {"labels", row["labels"]}};
    EXPECT_EQ(score("babilong", row["prediction"], {row["target"]}, extras).score, row["right"] == true ? 1 : 0) << row;
  }
  EXPECT_THROW((void)score("babilong", "x", {"x"}), UserError);
}

TEST(MathAnswer, IsThatOfTheGraderOfMath500) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_math_answer.json";
  const json file = json::parse(std::ifstream(vectors));
  ASSERT_GE(file["grades"].size(), 1500);
  testing::compared_scores("math_answer", file["grades"].size() + file["answers"].size());
  for (const json& row : file["grades"]) {
    EXPECT_EQ(math_answers_equal(row["given"].get<std::string>(), row["gold"].get<std::string>()), row["equal"]) << row;
  }
  for (const json& row : file["texts"]) {
    EXPECT_EQ(latex_to_text(row["latex"].get<std::string>()), row["text"].get<std::string>()) << row;
  }
  for (const json& row : file["answers"]) {
    EXPECT_EQ(score("math_answer", row["response"], {"0"}).notes.at("answer"), row["answer"]) << row;
  }
}

TEST(Mrcr, IsTheRatioOfPythonsDifflib) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_mrcr.json";
  const json rows = json::parse(std::ifstream(vectors));
  ASSERT_GE(rows.size(), 50);
  testing::compared_scores("mrcr", rows.size());
  for (const json& row : rows) {
    const MetricScore ours = score("mrcr", row["prediction"], {row["reference"]}, {{"prefix", row["prefix"]}});
    EXPECT_NEAR(ours.score, row["score"].get<double>(), 1e-12) << row;
  }
  EXPECT_THROW((void)score("mrcr", "x", {"x"}), UserError);
}

}  // namespace
}  // namespace kvarena::metrics
