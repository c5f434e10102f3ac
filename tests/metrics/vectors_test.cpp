#include "metrics/vectors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "harness/core/error.h"
#include "metrics/algorithms/jieba.h"
#include "tests/support/compared.h"

namespace kvarena::metrics {
namespace {

const std::filesystem::path kVectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "../shared/data/metric-vectors";
const std::filesystem::path kGolden = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden";

std::filesystem::path temporary_file(const std::string& name, const std::string& content) {
  const auto path = std::filesystem::temp_directory_path() / ("kvarena_" + name);
  std::ofstream(path) << content;
  return path;
}

std::string message_of(const std::filesystem::path& file) {
  try {
    (void)check_vectors(file);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// Records rows by metric, and fails for what differs.
class Vectors : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& [metric, rows] : rows_of_) testing::compared_scores(metric, static_cast<size_t>(rows));
  }

  void add(const VectorReport& report) {
    for (const auto& [metric, rows] : report.rows_of) rows_of_[metric] += rows;
    for (const VectorMismatch& m : report.mismatches) {
      ADD_FAILURE() << m.place << " " << m.field << ": expected " << m.expected << ", found " << m.found;
    }
  }

  int64_t add_all(bool chinese);

 private:
  std::map<std::string, int64_t> rows_of_;
};

// Rows that need jieba's dictionary, which is not in every checkout.
bool needs_jieba(const std::filesystem::path& file) { return file.stem() == "qa_f1_zh" || file.stem() == "rouge_l_zh"; }

int64_t Vectors::add_all(bool chinese) {
  int64_t rows = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kVectors)) {
    if (entry.path().extension() != ".jsonl" || needs_jieba(entry.path()) != chinese) continue;
    SCOPED_TRACE(entry.path().filename().string());
    VectorReport report;
    EXPECT_NO_THROW(report = check_vectors(entry.path(), {.tolerance = 1e-9}));
    EXPECT_GT(report.rows, 0);
    rows += report.rows;
    add(report);
  }
  return rows;
}

TEST_F(Vectors, EveryOfficialRowIsReproducedToOneBillionth) {
  if (!std::filesystem::exists(kVectors)) GTEST_SKIP() << "no metric vectors at " << kVectors;
  EXPECT_GE(add_all(false), 452);
}

TEST_F(Vectors, EveryChineseRowIsReproducedToOneBillionth) {
  if (!std::filesystem::exists(kVectors)) GTEST_SKIP() << "no metric vectors at " << kVectors;
  if (!std::filesystem::exists(jieba_folder() / "dict.txt")) GTEST_SKIP() << "no jieba data in " << jieba_folder();
  EXPECT_EQ(add_all(true), 20);
}

TEST_F(Vectors, OddInputsAreScoredAsByTheOfficialCode) {
  const VectorReport report = check_vectors(kGolden / "metrics_odd_inputs.jsonl", {.tolerance = 1e-12});
  EXPECT_GT(report.rows, 370);
  add(report);
}

TEST_F(Vectors, OddChineseInputsAreScoredAsByTheOfficialCode) {
  if (!std::filesystem::exists(jieba_folder() / "dict.txt")) GTEST_SKIP() << "no jieba data in " << jieba_folder();
  const VectorReport report = check_vectors(kGolden / "metrics_odd_inputs_zh.jsonl", {.tolerance = 1e-12});
  EXPECT_EQ(report.rows, 2);
  add(report);
}

TEST_F(Vectors, ToolLoopsAreScoredAsInPlainPython) {
  const VectorReport report = check_vectors(kGolden / "metrics_tool_loop.jsonl", {.tolerance = 1e-12});
  EXPECT_EQ(report.rows, 60);
  add(report);
}

TEST_F(Vectors, LiveCallsAreJudgedAsByBfcl) {
  const VectorReport report = check_vectors(kGolden / "metrics_bfcl.jsonl");
  EXPECT_EQ(report.rows, 62);
  add(report);
}

TEST_F(Vectors, NotANumberEqualsItselfAlone) {
  const std::string row =
      R"({"metric": "longbench_dataset_score", "dataset": "qasper", "predictions": ["x"], "answers": [["x"]], )"
      R"("lengths": [9], "all_classes": null, "note": "NaN", "longbench_e": true, "expected": )";
  const auto file = temporary_file("nan.jsonl", row + R"({"0-4k": 100.0, "4-8k": NaN, "8k+": NaN}})" + "\n" + row +
                                                    R"({"0-4k": NaN, "4-8k": 0.0, "8k+": null}})");
  const VectorReport report = check_vectors(file);
  ASSERT_EQ(report.rows, 2);
  ASSERT_EQ(report.mismatches.size(), 3u);
  EXPECT_EQ(report.mismatches[0].expected, "NaN");
  EXPECT_EQ(report.mismatches[0].found, "100.0");
  EXPECT_EQ(report.mismatches[1].found, "NaN");
  EXPECT_EQ(report.mismatches[2].expected, "null");
}

// No official code; selected entries and the top ones differ in number.
TEST_F(Vectors, OverlapIsTheShareOfTheTopEntriesThatWereSelected) {
  const auto file = temporary_file(
      "overlap.jsonl",
      R"({"metric": "attention_hit_rate", "attention_weights": [0.5, 0.25, 0.125, 0.125], "selected": [1, 2, 3], )"
      R"("k": 2, "expected": {"topk_indices": [0, 1], "topk_hit_rate": 0.75, "selected_hit_rate": 0.5, )"
      R"("overlap_with_topk": 0.5}})");
  EXPECT_TRUE(check_vectors(file).mismatches.empty());
}

TEST_F(Vectors, AWrongExpectationIsReportedWithItsPlace) {
  const auto file = temporary_file(
      "wrong.jsonl",
      "{\"id\": \"a\", \"metric\": \"qa_f1\", \"prediction\": \"x\", \"answers\": [\"x\"], \"expected\": 1.0}\n"
      "{\"id\": \"b\", \"metric\": \"qa_f1\", \"prediction\": \"x\", \"answers\": [\"x\"], \"expected\": 0.999}\n");
  const VectorReport report = check_vectors(file);
  ASSERT_EQ(report.rows, 2);
  ASSERT_EQ(report.mismatches.size(), 1u);
  EXPECT_EQ(report.mismatches[0].place, "kvarena_wrong.jsonl:2 b");
  EXPECT_EQ(report.mismatches[0].field, "expected");
  EXPECT_EQ(report.mismatches[0].expected, "0.999");
  EXPECT_EQ(report.mismatches[0].found, "1.0");
}

TEST_F(Vectors, ErrorsNameFileLineAndTheNearestMetric) {
  const auto unknown = temporary_file("unknown.jsonl", "\n{\"metric\": \"qa_f2\", \"expected\": 1}\n");
  EXPECT_NE(message_of(unknown).find("kvarena_unknown.jsonl:2"), std::string::npos);
  EXPECT_NE(message_of(unknown).find("did you mean \"qa_f1\""), std::string::npos);
  const auto no_input = temporary_file("no_input.jsonl", "{\"metric\": \"qa_f1\", \"prediction\": \"x\"}\n");
  EXPECT_NE(message_of(no_input).find("kvarena_no_input.jsonl:1"), std::string::npos);
  EXPECT_NE(message_of(no_input).find("answers"), std::string::npos);
  const auto not_json = temporary_file("not_json.jsonl", "{\"metric\": \n");
  EXPECT_NE(message_of(not_json).find("kvarena_not_json.jsonl:1"), std::string::npos);
  EXPECT_NE(message_of("no/such/file.jsonl").find("no/such/file.jsonl"), std::string::npos);
}

}  // namespace
}  // namespace kvarena::metrics
