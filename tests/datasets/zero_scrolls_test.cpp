// ZeroSCROLLS' prompts against the official code; the fixture and its script are tests/golden/datasets_zero_scrolls.
#include "datasets/data_files.h"
#include "harness/core/files.h"
#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

std::string digest(const Sample& sample) { return sha256(sample.messages.at(0).content).substr(0, 12); }

TEST(ZeroScrolls, PromptsWholeAndCutAreThoseOfTheOfficialCode) {
  const auto fixture = nlohmann::json::parse(
      read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_zero_scrolls.json"));
  const WordTokens tokens;
  ASSERT_EQ(fixture["prompts"].size(), 10U);
  size_t compared = 0;
  for (const auto& [task, rows] : fixture["prompts"].items()) {
    const auto whole = all_samples("zero_scrolls/" + task, "{}", {.data_dir = samples_dir()});
    const auto cut = all_samples("zero_scrolls/" + task, "{}",
                                 {.data_dir = samples_dir(), .tokens = &tokens, .max_prompt_tokens = fixture["limit"]});
    ASSERT_GE(whole.size(), 20U);
    ASSERT_EQ(whole.size(), rows.size());
    ASSERT_EQ(cut.size(), rows.size());
    compared += 2 * rows.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(digest(whole[i]), rows[i][0]) << task << " " << whole[i].id;
      EXPECT_EQ(digest(cut[i]), rows[i][1]) << task << " " << cut[i].messages[0].content;
      EXPECT_EQ(question_text(cut[i]), question_text(whole[i]));
      EXPECT_GT(cut[i].truncation.tokens_removed, 0);
    }
  }
  testing::compared_prompts("zero_scrolls", compared);
}

TEST(ZeroScrolls, RowsOfOneIdAreOneSampleAndQuestionsShareTheirText) {
  const auto samples = all_samples("zero_scrolls/squality", "{}", {.data_dir = samples_dir()});
  ASSERT_EQ(samples.size(), 30U);
  EXPECT_EQ(samples[0].references.size(), 2U);
  EXPECT_EQ(samples[0].context, samples[4].context);
  EXPECT_NE(samples[0].context, samples[5].context);
  EXPECT_TRUE(question_text(samples[1]).starts_with("Question:\nWhat is told of the")) << question_text(samples[1]);
  EXPECT_EQ(all_samples("zero_scrolls/gov_report", "{}", {.data_dir = samples_dir()})[0].context, "");
}

TEST(ZeroScrolls, AnIndexBehindTheInputNamesItsRow) {
  const auto folder = std::filesystem::temp_directory_path() / ("kvarena_zero_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "zero_scrolls/qmsum");
  std::ofstream(folder / "zero_scrolls/qmsum/validation.jsonl")
      << R"({"id": "a", "input": "né", "output": "x", "query_start_index": 3, "truncation_seperator": "."})";
  const std::string error = error_of([&] { (void)all_samples("zero_scrolls/qmsum", "{}", {.data_dir = folder}); });
  std::filesystem::remove_all(folder);
  EXPECT_NE(error.find("validation.jsonl:1"), std::string::npos) << error;
  EXPECT_NE(error.find("outside the input"), std::string::npos) << error;
}

}  // namespace
}  // namespace kvarena::datasets
