#include "metrics/score_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena::metrics {
namespace {

std::filesystem::path file_with(const std::string& name, const std::string& content) {
  const auto path = std::filesystem::temp_directory_path() / ("kvarena_scores_" + name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string error_of(const std::string& content, const char* metric = "qa_f1", const ScoreFileOptions& options = {}) {
  try {
    (void)score_file(file_with("bad.jsonl", content), find_metric(metric), options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " not in: " << message;
}

TEST(ScoreFile, GivesAMetricTheFieldsOfTheHarnessesDocument) {
  const auto file = file_with(
      "doc.jsonl", R"({"doc_id": 0, "doc": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}, )"
                   R"("target": "0", "resps": [["a, b"]], "filtered_resps": ["a b"]})");
  EXPECT_EQ(score_file(file, find_metric("ifeval")).mean, 1);
}

TEST(ScoreFile, ReadsOurOwnForm) {
  const auto file = file_with("own.jsonl",
                              "{\"id\": \"a\", \"prediction\": \"Ida Brandt\", \"references\": [\"Ida Brandt\"]}\n\n"
                              "{\"id\": \"b\", \"prediction\": \"Oder river\", \"reference\": \"Oder\"}\r\n");
  std::vector<std::pair<int64_t, std::string>> seen;
  const FileScore score = score_file(file, find_metric("qa_f1"), {},
                                     [&](const ScoredSample& sample) { seen.emplace_back(sample.line, sample.id); });
  EXPECT_EQ(score.samples, 2);
  EXPECT_NEAR(score.mean, (1 + 2.0 / 3) / 2, 1e-12);
  EXPECT_NEAR(score.table_value, 100 * score.mean, 1e-12);
  EXPECT_LE(score.interval.low, score.mean);
  EXPECT_GE(score.interval.high, score.mean);
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, std::string>>{{1, "a"}, {3, "b"}}));
}

TEST(ScoreFile, MetricsThatNeedNoReferenceTakeRowsWithoutOne) {
  const auto file = file_with("alone.jsonl", "{\"response\": \"{}\"}\n{\"response\": \"{,}\"}\n");
  EXPECT_EQ(score_file(file, find_metric("json_validity")).mean, 0.5);
  expect_parts(error_of("{\"response\": \"{}\"}\n"), {"bad.jsonl:1", "references"});
}

TEST(ScoreFile, AJudgesWordsAreScoredInsteadOfThePrediction) {
  const auto file = file_with("judged.jsonl", "{\"prompt\": \"a list\", \"response\": \"none\"}\n");
  ScoreFileOptions options;
  options.rewrite = [](const nlohmann::json& row, const PredictionRow& sample) {
    EXPECT_EQ(row.at("prompt"), "a list");
    EXPECT_EQ(sample.prediction, "none");
    return std::string("[1]");
  };
  EXPECT_EQ(score_file(file, find_metric("json_validity"), options).mean, 1.0);
}

TEST(ScoreFile, WhatTheMetricCannotReadIsCountedAndLeftOutOfTheMean) {
  const std::string marks =
      R"({"Relevance": 5, "Accuracy": 5, "Coherence": 4, "Clarity": 4, "Breadth and Depth": 3, "Reading Experience": 3})";
  std::string wild = marks;
  wild.replace(wild.find("5"), 1, "500");
  std::string rows;
  for (const std::string& words : {marks, std::string("nan"), wild}) {
    rows += nlohmann::json{{"response", words}}.dump() + "\n";
  }
  const FileScore score = score_file(file_with("marks.jsonl", rows), find_metric("judged_quality"));
  EXPECT_EQ(score.samples, 3);
  EXPECT_EQ(score.unread, 2);
  EXPECT_EQ(score.mean, 0.75);
}

TEST(ScoreFile, ReadsLongBenchPredictionsWithTheirTasksRules) {
  const auto file =
      file_with("longbench.jsonl",
                "{\"pred\": \"\\nCity\\nType: Food\", \"answers\": [\"City\"], \"all_classes\": [\"City\", "
                "\"Food\"], \"length\": 12}\n");
  EXPECT_EQ(score_file(file, find_metric("longbench"), {.extras_json = R"({"dataset": "trec"})"}).mean, 1.0);
  EXPECT_EQ(score_file(file, find_metric("classification")).mean, 0.5);
}

TEST(ScoreFile, ReadsLmEvaluationHarnessSamples) {
  const auto file = file_with("lm_eval.jsonl",
                              "{\"doc_id\": 0, \"target\": \"x\\n#### 7\", \"resps\": [[\"It is 7.\"]], "
                              "\"filtered_resps\": [\"#### 7\"]}\n"
                              "{\"doc_id\": 1, \"target\": 18, \"resps\": [[\"#### 18\"]]}\n");
  EXPECT_EQ(score_file(file, find_metric("gsm8k")).mean, 1.0);
}

TEST(ScoreFile, ReadsInfiniteBenchPredictionsAndPythonsNaN) {
  const auto file = file_with("infinitebench.jsonl",
                              "{\"id\": 0, \"prediction\": \"It is 71432.\", \"ground_truth\": [\"71432\"]}\n"
                              "{\"id\": 1, \"prediction\": \"It is 5.\", \"ground_truth\": \"6\", \"loss\": NaN}\n");
  EXPECT_EQ(score_file(file, find_metric("infinitebench"), {.extras_json = R"({"task": "passkey"})"}).mean, 0.5);
  expect_parts(error_of("{\"prediction\": NaNs, \"answers\": [\"x\"]}\n"), {"bad.jsonl:1", "one JSON value"});
  expect_parts(error_of("{\"prediction\": " + std::string(60000, '[')), {"bad.jsonl:1", "500"});
}

TEST(ScoreFile, JoinsReferencesOfASecondFileByIdElseByOrder) {
  const auto named =
      file_with("named.jsonl", "{\"_id\": \"q2\", \"answers\": [\"b\"]}\n{\"_id\": \"q1\", \"answers\": [\"a\"]}\n");
  const auto by_id =
      file_with("by_id.jsonl", "{\"_id\": \"q1\", \"pred\": \"a\"}\n{\"_id\": \"q2\", \"pred\": \"b\"}\n");
  EXPECT_EQ(score_file(by_id, find_metric("exact_match"), {.references_file = named}).mean, 1.0);
  const auto in_order = file_with("in_order.jsonl", "{\"pred\": \"b\"}\n{\"pred\": \"a\"}\n");
  EXPECT_EQ(score_file(in_order, find_metric("exact_match"), {.references_file = named}).mean, 1.0);
}

TEST(ScoreFile, AnEmptyFileHasNoSamples) {
  const FileScore score = score_file(file_with("empty.jsonl", "\n\n"), find_metric("qa_f1"));
  EXPECT_EQ(score.samples, 0);
  EXPECT_EQ(score.mean, 0);
}

TEST(ScoreFile, ErrorsNameFileLineAndWhatToDo) {
  expect_parts(error_of("{\"prediction\": \"x\", \"answers\": [\"x\"]}\n{\"prediction\": \"\xff\"}\n"),
               {"bad.jsonl:2", "0xff", "column 17", "UTF-8"});
  expect_parts(error_of("{\"prediction\": \"x\"\n"), {"bad.jsonl:1", "one JSON value on each line"});
  expect_parts(error_of("[1, 2]\n"), {"bad.jsonl:1", "a JSON array", "object"});
  expect_parts(error_of("{\"text\": \"x\", \"answers\": [\"x\"]}\n"),
               {"bad.jsonl:1", "prediction", "answers, text", "pred"});
  expect_parts(error_of("{\"pred\": \"x\", \"gold\": \"x\"}\n"), {"bad.jsonl:1", "reference", "gold, pred", "answers"});
  expect_parts(error_of("{\"pred\": {}, \"answers\": []}\n"), {"bad.jsonl:1", "prediction", "a text"});
  expect_parts(error_of("{\"pred\": \"x\", \"answers\": [\"x\"]}\n", "classification"), {"bad.jsonl:1", "all_classes"});
  expect_parts(error_of("{\"pred\": \"x\", \"answers\": [\"x\"]}\n", "retrieval"), {"bad.jsonl:1", "Paragraph"});
  expect_parts(error_of("{\"pred\": \"x\", \"answers\": [\"x\"]}\n", "kl"), {"bad.jsonl:1", "distribution"});
  expect_parts(error_of("{\"pred\": \"x\", \"answers\": [\"x\"], \"first_line_only\": \"yes\"}\n"), {"bad.jsonl:1"});
  expect_parts(error_of("{}", "qa_f1", {.extras_json = "trec"}), {"extras", "trec", "JSON object"});
  const auto references = file_with("short.jsonl", "{\"answers\": [\"x\"]}\n");
  expect_parts(error_of("{\"pred\": \"x\"}\n{\"pred\": \"y\"}\n", "qa_f1", {.references_file = references}),
               {"bad.jsonl:2", "short.jsonl", "1 rows", "a row 2"});
  EXPECT_THROW((void)score_file("no/such/file.jsonl", find_metric("qa_f1")), UserError);
  EXPECT_THROW((void)score_file(std::filesystem::temp_directory_path(), find_metric("qa_f1")), UserError);
}

}  // namespace
}  // namespace kvarena::metrics
