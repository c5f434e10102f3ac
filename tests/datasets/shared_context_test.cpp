// Prompts and labels of InfiniteBench, SCBench, LooGLE and LoCoMo against their official code: the fixtures and their
// scripts are tests/golden/datasets_shared_context_prompts and datasets_locomo.
#include "datasets/data_files.h"
#include "harness/core/files.h"
#include "tests/datasets/support.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

const nlohmann::json& fixture() {
  static const nlohmann::json kFixture = nlohmann::json::parse(
      read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_shared_context_prompts.json"));
  return kFixture;
}

std::string digest(const std::string& text) { return sha256(text).substr(0, 12); }

std::string label_of(const Sample& sample) { return nlohmann::json::parse(sample.extras).at("label").dump(); }

std::string chat(const Sample& sample) {
  std::string text;
  for (const Message& message : sample.messages) {
    text += "<" + message.role + ">" + message.content + "</" + message.role + ">";
  }
  return text + "<assistant>" + sample.answer_prefix;
}

TEST(InfiniteBench, PromptsAndLabelsOfAllTasksAreThoseOfTheOfficialCode) {
  const nlohmann::json& tasks = fixture().at("infinitebench");
  ASSERT_EQ(tasks.size(), 12u);
  size_t compared = 0;
  for (const auto& [task, rows] : tasks.items()) {
    const auto samples = all_samples("infinitebench/" + task, "{}", {.data_dir = samples_dir()});
    ASSERT_GE(samples.size(), 20u);
    ASSERT_EQ(samples.size(), rows.size());
    compared += rows.size();
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(digest(samples[i].messages.at(0).content), rows[i][0]) << task << "\n" << question_text(samples[i]);
      EXPECT_EQ(digest(label_of(samples[i])), rows[i][1]) << task << "\n" << samples[i].extras;
    }
  }
  testing::compared_prompts("infinitebench", compared);
}

TEST(ScBench, PromptsAndLabelsInBothModesAreThoseOfTheOfficialCode) {
  const nlohmann::json& tasks = fixture().at("scbench");
  ASSERT_EQ(tasks.size(), 12u);
  size_t compared = 0;
  for (const auto& [task, rows] : tasks.items()) {
    const auto one = all_samples("scbench/" + task, "{}", {.data_dir = samples_dir()});
    const auto many = all_samples("scbench/" + task, "{}", {.data_dir = samples_dir(), .turns = true});
    ASSERT_GE(one.size(), 20u);
    ASSERT_EQ(one.size(), rows.size());
    ASSERT_EQ(many.size(), rows.size());
    compared += one.size() + many.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(digest(one[i].messages.at(0).content), rows[i][0]) << task << "\n" << question_text(one[i]);
      EXPECT_EQ(digest(chat(many[i])), rows[i][1]) << task << "\n" << chat(many[i]).substr(many[i].question.byte);
      EXPECT_EQ(digest(label_of(one[i])), rows[i][2]) << task << "\n" << one[i].extras;
    }
  }
  testing::compared_prompts("scbench", compared);
}

TEST(ScBench, TurnsOfMixedTasksHaveTheirOwnBudgetsAndScorers) {
  const auto samples = all_samples("scbench/repoqa_and_kv", "{}", {.data_dir = samples_dir()});
  const auto of = [&](size_t i) { return nlohmann::json::parse(samples.at(i).extras); };
  EXPECT_EQ(of(0)["task"], "repoqa");
  EXPECT_EQ(of(0)["language"], "python");
  EXPECT_EQ(of(0)["functions"].size(), 3u);
  EXPECT_EQ(samples[0].generation.max_new_tokens, 1024);
  EXPECT_EQ(of(1)["task"], "kv");
  EXPECT_FALSE(of(1).contains("functions"));
  EXPECT_EQ(samples[1].generation.max_new_tokens, 80);
}

TEST(LooGle, PromptsAreTheOfficialOnesAndQuestionsShareTheirText) {
  const nlohmann::json& tasks = fixture().at("loogle");
  ASSERT_EQ(tasks.size(), 4u);
  size_t compared = 0;
  for (const auto& [task, rows] : tasks.items()) {
    const auto samples = all_samples("loogle/" + task, "{}", {.data_dir = samples_dir()});
    ASSERT_GE(samples.size(), 20u);
    ASSERT_EQ(samples.size(), rows.size());
    compared += rows.size();
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(digest(samples[i].messages.at(0).content), rows[i][0]) << task << "\n" << question_text(samples[i]);
      if (task == "longdep_summarization") continue;
      EXPECT_EQ(samples[i].id, std::to_string(i / 5) + "-" + std::to_string(i % 5));
      EXPECT_EQ(samples[i].context, std::to_string(i / 5));
      EXPECT_EQ(samples[i].question, samples[i - i % 5].question);
    }
  }
  testing::compared_prompts("loogle", compared);
}

TEST(LoCoMo, PromptsAreThoseOfTheOfficialCodeAndQuestionsShareTheirConversation) {
  const nlohmann::json fixture =
      nlohmann::json::parse(read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_locomo.json"));
  ASSERT_EQ(fixture["prompts"].size(), 5U);
  size_t compared = 0;
  for (const auto& [category, rows] : fixture["prompts"].items()) {
    const auto samples = all_samples("locomo/" + category, "{}", {.data_dir = samples_dir()});
    ASSERT_GE(samples.size(), 20U);
    ASSERT_EQ(samples.size(), rows.size());
    compared += rows.size();
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(digest(samples[i].messages.at(0).content), rows[i]) << category << "\n" << question_text(samples[i]);
      EXPECT_EQ(samples[i].context.empty(), false);
      EXPECT_TRUE(question_text(samples[i]).starts_with("\n\n\nBased on the above")) << question_text(samples[i]);
    }
  }
  testing::compared_prompts("locomo", compared);
}

}  // namespace
}  // namespace kvarena::datasets
