// kvarena score: scores on standard output, differences as exit codes.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

constexpr const char* kPairs =
    "{\"id\": \"a\", \"prediction\": \"Paris\", \"references\": [\"paris\"]}\n"
    "{\"id\": \"b\", \"prediction\": \"in Rome\", \"references\": [\"Rome\", \"Roma\"]}\n"
    "{\"id\": \"c\", \"prediction\": \"\", \"references\": [\"x\"]}\n";

TEST(Score, EachLineGetsItsScore) {
  const Finished finished = run_kvarena({"score", "--metric", "qa_f1"}, {.input = kPairs});
  ASSERT_EQ(finished.code, 0) << finished.err;
  std::istringstream lines(finished.out);
  std::vector<json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].at("id"), "a");
  EXPECT_DOUBLE_EQ(rows[0].at("score"), 1.0);
  EXPECT_DOUBLE_EQ(rows[1].at("score"), 2.0 / 3.0);  // precision 1/2, recall 1
  EXPECT_DOUBLE_EQ(rows[2].at("score"), 0.0);
  EXPECT_TRUE(contains(finished.err, "3 samples")) << finished.err;
}

TEST(Score, TheMeanIsThatOfTheLines) {
  const Finished finished = run_kvarena({"score", "--metric", "qa_f1", "--mean"}, {.input = kPairs});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json mean = json::parse(finished.out);
  EXPECT_EQ(mean.at("samples"), 3);
  EXPECT_DOUBLE_EQ(mean.at("mean"), (1.0 + 2.0 / 3.0) / 3);
}

TEST(Score, BadInputIsNamedByLine) {
  const Finished broken =
      run_kvarena({"score", "--metric", "qa_f1"}, {.input = std::string(kPairs) + "{\"prediction\": 1"});
  EXPECT_EQ(broken.code, 2);
  EXPECT_TRUE(contains(broken.err, "/dev/stdin:4")) << broken.err;
  expect_refused(run_kvarena({"score", "--metric", "qa_f1"}, {.input = "\n"}), "no row");
  expect_refused(run_kvarena({"score", "--metric", "qa_ff1"}), "did you mean \"qa_f1\"?");
  expect_refused(run_kvarena({"score"}), "--metric: found nothing");
  expect_refused(run_kvarena({"score", "--metric", "qa_f1", "no/such.jsonl"}), "no/such.jsonl");
}

TEST(Score, AWrongVectorIsShownAndFails) {
  const ScratchFolder scratch;
  const auto vectors =
      [&](const std::string& expected) {
        std::ofstream(scratch / "v.jsonl")
            << R"({"id": "one", "metric": "qa_f1", "prediction": "in Rome", "answers": ["Rome"], )"
            << "\"expected_per_answer\": [" << expected << "], \"expected\": " << expected << "}\n";
        return run_kvarena({"score", "--vectors", (scratch / "v.jsonl").string()});
      };
  const Finished equal = vectors("0.6666666666666666");
  EXPECT_EQ(equal.code, 0) << equal.err;
  EXPECT_TRUE(contains(equal.out, "1 rows, all equal")) << equal.out;
  const Finished different = vectors("0.6666");
  EXPECT_EQ(different.code, 1);
  EXPECT_TRUE(contains(different.out, "v.jsonl:1 one")) << different.out;
  EXPECT_TRUE(contains(different.out, "expected 0.6666, found 0.66666666")) << different.out;
}

TEST(Score, AMetricThatSearchesWithPatternsEndsAsWellAsItBegan) {
  // The tokenizers have patterns of their own in the same program; both must be taken down by their own code.
  const Finished finished =
      run_kvarena({"score", "--metric", "gsm8k"},
                  {.input = "{\"prediction\": \"so the answer is\\n#### 18\", \"answers\": [\"#### 18\"]}\n"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "\"score\":1.0")) << finished.out;
}

}  // namespace
}  // namespace kvarena::testing
