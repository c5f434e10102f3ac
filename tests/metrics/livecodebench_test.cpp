// Programs of models beside their tests: against LiveCodeBench's own results (tests/golden/metrics_livecodebench.py),
// and in bounds.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "metrics/registry.h"
#include "metrics/vectors.h"
#include "tests/support/compared.h"
#include "tests/support/error_of.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

class LiveCodeBench : public ::testing::Test {
 protected:
  LiveCodeBench() { ::setenv("KVARENA_RUN_CODE", "1", 1); }
  ~LiveCodeBench() override { ::unsetenv("KVARENA_RUN_CODE"); }

  /// Scores a program that reads nothing and is to write "ok".
  static MetricScore score(const std::string& program, const json& private_tests = "[]") {
    const json extras = {
        {"tests", {R"([{"input": "", "output": "ok"}])", private_tests}}, {"function", nullptr}, {"seconds", 2}};
    const std::string answer = "```python\n" + program + "\n```";
    return score_sample(find_metric("livecodebench"), {answer, {}, extras});
  }
};

TEST_F(LiveCodeBench, ResultsAreTheOfficialOnes) {
  const auto vectors = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_livecodebench.jsonl";
  const VectorReport report = check_vectors(vectors, {.tolerance = 0});
  EXPECT_EQ(report.rows, 96);
  testing::compared_scores("livecodebench", 96);
  for (const VectorMismatch& m : report.mismatches) {
    ADD_FAILURE() << m.place << " " << m.field << ": expected " << m.expected << ", found " << m.found;
  }
}

TEST_F(LiveCodeBench, NothingRunsUnlessItIsAllowed) {
  const auto mark = std::filesystem::temp_directory_path() / ("kvarena_ran_" + std::to_string(::getpid()));
  const std::string program = "import pathlib\npathlib.Path('" + mark.string() + "').mkdir()\nprint('ok')";
  ::unsetenv("KVARENA_RUN_CODE");
  const std::string refusal = testing::error_of([&] { (void)score(program); });
  EXPECT_NE(refusal.find("expected KVARENA_RUN_CODE=1, which allows it"), std::string::npos) << refusal;
  ::setenv("KVARENA_RUN_CODE", "yes", 1);
  EXPECT_NE(testing::error_of([&] { (void)score(program); }), "");
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST_F(LiveCodeBench, ProgramsStayInBounds) {
  EXPECT_EQ(score("print('ok')").score, 1);
  EXPECT_EQ(score("x = bytearray(8 << 30)\nprint('ok')").notes.at("error"), "an error");
  EXPECT_EQ(score("import subprocess\nsubprocess.run(['true'])\nprint('ok')").score, 0);
  EXPECT_EQ(score("import os\nos.posix_spawn('/bin/true', ['true'], {})\nprint('ok')").score, 0);
  EXPECT_EQ(score("import os\nf = os.open('written', os.O_CREAT | os.O_WRONLY)\nos.write(f, b'x')\nprint('ok')").score,
            0);
  EXPECT_EQ(score("import socket\nsocket.create_connection(('127.0.0.1', 9))\nprint('ok')").score, 0);
  EXPECT_EQ(score("import os\nprint('ok' if os.environ.get('PATH') is None else 'no')").score, 1);
  EXPECT_EQ(score("import signal, os\nos.abort()").notes.at("error"), "another output");
}

TEST_F(LiveCodeBench, PicklesOfMoreThanATextAreRefused) {
  // base64 of zlib of pickle: of a call of os.system("true"), and of the text "[]".
  const std::string call = "eJxLLsgvzqzgKq4sLknN5Sow4NIIKykqTeUqMOQqKTDiCiow5tIDAOchCzo=";
  EXPECT_NE(testing::error_of([&] { (void)score("print('ok')", call); }), "");
  const std::string text = "eJxrYJnKxgABPUzRsVP0ABkLAyg=";
  EXPECT_EQ(score("print('ok')", text).score, 1);
}

TEST_F(LiveCodeBench, SaysHowManyTestsWerePassed) {
  const MetricScore score = LiveCodeBench::score("print('ok')", R"([{"input": "a", "output": "other"}])");
  EXPECT_EQ(score.score, 0);
  EXPECT_EQ(score.values.at("tests_passed"), 1);
  EXPECT_EQ(score.values.at("tests"), 2);
  EXPECT_EQ(score.notes.at("error"), "another output");
}

}  // namespace
}  // namespace kvarena::metrics
