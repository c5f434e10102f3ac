#include <fmt/format.h>

#include <set>

#include "datasets/ruler_tasks.h"
#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"

namespace kvarena::datasets {
namespace {

class RulerTaskTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, RulerTaskTest,
                         ::testing::Values("niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1",
                                           "niah_multikey_2", "niah_multikey_3", "niah_multivalue", "niah_multiquery",
                                           "vt", "cwe", "fwe", "qa_1", "qa_2"));

TEST_P(RulerTaskTest, FillsTheWantedLengthAndHoldsItsAnswers) {
  const WordTokens tokens(/*leading_special_tokens=*/1);
  for (const int64_t length : {2000, 4096}) {
    const auto samples = all_samples(fmt::format("ruler/{}", GetParam()),
                                     fmt::format(R"({{"length": {}, "samples": 3}})", length), {.tokens = &tokens});
    ASSERT_EQ(samples.size(), 3u);
    for (const Sample& sample : samples) {
      const std::string& input = sample.messages[0].content;
      const auto used =
          static_cast<int64_t>(1 + tokens.encode(input).size() + tokens.encode(sample.answer_prefix).size()) +
          sample.generation.max_new_tokens;
      EXPECT_LE(used, length);
      EXPECT_GT(used, length * 3 / 4) << "a document of qa is the coarsest step";
      EXPECT_EQ(nlohmann::json::parse(sample.extras)["length"], used);
      const std::string context = input.substr(0, sample.question.byte);
      for (const std::string& answer : sample.references) {
        EXPECT_NE(context.find(answer), std::string::npos) << answer;
        EXPECT_EQ(question_text(sample).find(answer), std::string::npos) << answer;
      }
    }
    EXPECT_NE(samples[0].prompt_sha256, samples[1].prompt_sha256);
  }
}

TEST(Ruler, HasTheThirteenTasksOfTheTable) {
  std::set<std::string> names;
  for (const RulerTask& task : ruler_tasks()) names.insert(task.name);
  EXPECT_EQ(names.size(), 13u);
  EXPECT_EQ(find_workload("ruler/qa_1", "test").info.metrics[0], "string_match_part");
  EXPECT_EQ(find_workload("ruler/vt", "test").info.metrics[0], "string_match_all");
}

const RulerTask& task_named(std::string_view name) {
  for (const RulerTask& task : ruler_tasks()) {
    if (task.name == name) return task;
  }
  throw std::out_of_range("no such task");
}

RulerRow row_of(std::string_view name, int64_t hay) {
  Draw draw(7, "test");
  const RulerTask& task = task_named(name);
  return task.make(task, draw, hay);
}

TEST(Ruler, SingleNeedlesUseTheSingularTemplate) {
  const RulerRow one = row_of("niah_single_1", 10);
  EXPECT_TRUE(one.input.starts_with(
      "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you about the "
      "number afterwards.\n"));
  EXPECT_EQ(one.input.substr(one.question, 37), "\nWhat is the special magic number for");
  EXPECT_TRUE(one.answer_prefix.ends_with(" mentioned in the provided text is"));
  const RulerRow four = row_of("niah_multiquery", 10);
  EXPECT_EQ(four.outputs.size(), 4u);
  EXPECT_NE(four.input.find("What are all the special magic numbers for "), std::string::npos);
  EXPECT_NE(four.input.substr(four.question).find(", and "), std::string::npos);
}

TEST(Ruler, ValuesAreSevenDigitsOrUuids) {
  EXPECT_EQ(row_of("niah_multivalue", 10).outputs.size(), 4u);
  for (const std::string& value : row_of("niah_multivalue", 10).outputs) {
    EXPECT_EQ(value.size(), 7u);
    EXPECT_EQ(value.find_first_not_of("0123456789"), std::string::npos);
  }
  const std::string uuid = row_of("niah_multikey_3", 10).outputs.at(0);
  EXPECT_EQ(uuid.size(), 36u);
  EXPECT_EQ(uuid[8], '-');
}

TEST(Ruler, AChainAssignsEveryVariableBeforeItIsUsed) {
  const RulerRow row = row_of("vt", 30);
  size_t last = 0;
  for (const std::string& name : row.outputs) {
    const size_t at = row.input.find(fmt::format("VAR {} = ", name));
    ASSERT_NE(at, std::string::npos);
    EXPECT_GT(at, last);
    last = at;
  }
  EXPECT_EQ(row.outputs.size(), 5u);
}

TEST(Ruler, CommonWordsStandThirtyTimesOthersThreeTimes) {
  const RulerRow row = row_of("cwe", 20);
  const std::string list = row.input.substr(row.input.rfind("Below is"), std::string::npos);
  for (const std::string& word : row.outputs) {
    size_t count = 0;
    for (size_t at = list.find(fmt::format(". {}", word)); at != std::string::npos;
         at = list.find(fmt::format(". {}", word), at + 1)) {
      ++count;
    }
    EXPECT_EQ(count, 30u) << word;
  }
}

TEST(Ruler, FrequentWordsFollowTheZetaLaw) {
  const RulerRow row = row_of("fwe", 4000);
  const auto count = [&](const std::string& word) {
    size_t times = 0;
    for (size_t at = row.input.find(word); at != std::string::npos; at = row.input.find(word, at + 1)) ++times;
    return times;
  };
  EXPECT_EQ(count(row.outputs.at(0)), 607u);  // int(4000 / 2^2 / zeta(2))
  EXPECT_EQ(count(row.outputs.at(1)), 270u);  // int(4000 / 3^2 / zeta(2))
  EXPECT_EQ(count(row.outputs.at(2)), 151u);  // int(4000 / 4^2 / zeta(2))
}

TEST(Ruler, ReadsRowsOfTheOfficialScriptsOldAndNew) {
  const TemporaryFile file(
      "ruler.jsonl",
      R"({"index": 0, "input": "Hay.\nWhat is it? It is", "outputs": ["x"], "length": 10})"
      "\n"
      R"({"index": 1, "input": "Hay.\nWhat?", "outputs": ["y"], "length": 10, "answer_prefix": " It is"})"
      "\n");
  const auto samples = all_samples("ruler/niah_single_1", fmt::format(R"({{"rows": "{}"}})", file.path().string()));
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].answer_prefix, "");
  EXPECT_EQ(samples[1].answer_prefix, " It is");
  EXPECT_EQ(question_text(samples[1]), "\nWhat?");
}

TEST(Ruler, SaysWhichLengthATaskNeedsAtLeast) {
  const WordTokens tokens;
  const std::string message =
      error_of([&] { (void)all_samples("ruler/cwe", R"({"length": 300})", {.tokens = &tokens}); });
  EXPECT_NE(message.find("ruler/cwe: found length 300, expected at least "), std::string::npos) << message;
}

}  // namespace
}  // namespace kvarena::datasets
