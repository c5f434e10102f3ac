// Prompts of LongHealth and GPQA against code that is not ours: the fixture and its script are
// tests/golden/datasets_multiple_choice. QuALITY's against the words of ZeroSCROLLS.
#include <algorithm>
#include <sstream>

#include "datasets/data_files.h"
#include "harness/core/files.h"
#include "tests/datasets/support.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

const nlohmann::json& fixture() {
  static const nlohmann::json kFixture = nlohmann::json::parse(
      read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_multiple_choice.json"));
  return kFixture;
}

std::string digest(const std::string& text) { return sha256(text).substr(0, 12); }

std::vector<Sample> project_made(const std::string& name, const std::string& parameters = "{}") {
  return all_samples(name, parameters, {.data_dir = samples_dir()});
}

/// The option that a sample's reference names.
std::string right_option(const Sample& sample) {
  const auto choices = nlohmann::json::parse(sample.extras).at("choices");
  return choices.at(static_cast<size_t>(sample.references.at(0).at(0) - 'A'));
}

TEST(LongHealth, PromptsAreThoseOfItsCodeAndQuestionsShareTheLetters) {
  const auto samples = project_made("longhealth");
  const nlohmann::json& expected = fixture().at("longhealth");
  ASSERT_GE(samples.size(), 20u);
  ASSERT_EQ(samples.size(), expected.size());
  testing::compared_prompts("longhealth", expected.size());
  const auto rows = json_lines(samples_dir() / "longhealth/benchmark_v5.jsonl");
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(digest(samples[i].messages.at(0).content + samples[i].messages.at(1).content), expected[i]);
    EXPECT_TRUE(question_text(samples[i]).starts_with("\n\n--------------END DOCUMENTS")) << question_text(samples[i]);
    EXPECT_EQ(samples[i].question, samples[i - i % 5].question);
    EXPECT_EQ(right_option(samples[i]), rows[i / 5]["questions"][i % 5]["correct"]);
  }
}

TEST(Gpqa, PromptsAreThoseOfLmEvaluationHarnessInAnotherOrderOfOptions) {
  const auto rows = json_lines(samples_dir() / "gpqa/gpqa_diamond.jsonl");
  std::string orders;
  size_t compared = 0;
  for (const char* set : {"diamond", "main", "extended"}) {
    const auto samples = project_made(std::string("gpqa/") + set);
    ASSERT_GE(samples.size(), 20u);
    for (size_t i = 0; i < samples.size(); ++i) {
      std::istringstream prompt(samples[i].messages.at(0).content);
      std::vector<std::string> lines;
      for (std::string line; std::getline(prompt, line);) {
        if (line.starts_with("(") && line.substr(2, 2) == ") ") line.erase(0, 4);
        lines.push_back(line);
      }
      std::ranges::sort(lines);
      std::string joined = lines.at(0);
      for (size_t k = 1; k < lines.size(); ++k) joined += "\n" + lines[k];
      EXPECT_EQ(digest(joined), fixture().at("gpqa").at(i)) << samples[i].messages[0].content;
      EXPECT_NE(rows[i]["Correct Answer"].get<std::string>().find(right_option(samples[i]).substr(0, 3)),
                std::string::npos);
      orders += samples[i].references[0];
    }
    compared += samples.size();
  }
  testing::compared_prompts("gpqa", compared);
  for (const char letter : std::string("ABCD")) EXPECT_NE(orders.find(letter), std::string::npos) << orders;
  EXPECT_NE(
      project_made("gpqa/main", R"({"seed": 2})")[0].extras + project_made("gpqa/main", R"({"seed": 2})")[1].extras,
      project_made("gpqa/main")[0].extras + project_made("gpqa/main")[1].extras);
}

TEST(Quality, AsksForALetterBehindTheStory) {
  const auto samples = project_made("quality");
  const auto rows = json_lines(samples_dir() / "quality/QuALITY.v1.0.1.htmlstripped.dev");
  ASSERT_GE(samples.size(), 20u);
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto& asked = rows[i / 5]["questions"][i % 5];
    const auto options = asked["options"].get<std::vector<std::string>>();
    EXPECT_EQ(question_text(samples[i]), "\n\nQuestion and Possible Answers:\n" + asked["question"].get<std::string>() +
                                             "\n (A) " + options[0] + "\n (B) " + options[1] + "\n (C) " + options[2] +
                                             "\n (D) " + options[3] + "\n\nAnswer:\n");
    EXPECT_EQ(right_option(samples[i]), options.at(asked["gold_label"].get<size_t>() - 1));
    EXPECT_EQ(samples[i].context, std::to_string(i / 5));
  }
  EXPECT_EQ(project_made("quality", R"({"hard": true})").size(), 2 * rows.size());
}

}  // namespace
}  // namespace kvarena::datasets
