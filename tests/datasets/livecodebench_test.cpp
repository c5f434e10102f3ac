// LiveCodeBench's prompts against its own code (tests/golden/metrics_livecodebench.py), and rows of its files.

#include "datasets/data_files.h"
#include "tests/datasets/support.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

TEST(LiveCodeBench, PromptsAreThoseOfTheRunner) {
  const json rows = json::parse(
      std::ifstream(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_livecodebench.json"));
  const auto samples = all_samples("livecodebench");
  ASSERT_EQ(samples.size(), 24U);
  ASSERT_EQ(samples.size(), rows.size());
  testing::compared_prompts("livecodebench", rows.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    json messages = json::array();
    for (const Message& message : samples[i].messages) {
      messages.push_back({{"role", message.role}, {"content", message.content}});
    }
    EXPECT_EQ(samples[i].id, rows[i]["id"]);
    EXPECT_EQ(messages, rows[i]["messages"]) << samples[i].id;
  }
}

TEST(LiveCodeBench, TestsGoToTheMetricAsTheyAre) {
  const auto samples = all_samples("livecodebench");
  const auto rows = json_lines(samples_dir() / "livecodebench/test6.jsonl");
  for (size_t i = 0; i < samples.size(); ++i) {
    const json extras = json::parse(samples[i].extras);
    EXPECT_EQ(extras["tests"], (json{rows[i]["public_test_cases"], rows[i]["private_test_cases"]}));
    EXPECT_EQ(extras["function"].is_null(), rows[i]["starter_code"] == "") << samples[i].id;
  }
}

TEST(LiveCodeBench, AnotherVersionIsAnotherFile) {
  const std::string error = error_of([] { (void)all_samples("livecodebench", R"({"version": "v5"})"); });
  EXPECT_NE(error.find("test5.jsonl"), std::string::npos) << error;
}

}  // namespace
}  // namespace kvarena::datasets
