// Prompts of LongMemEval against its own code: the fixture and its script are tests/golden/datasets_longmemeval.
#include <fmt/format.h>

#include "datasets/data_files.h"
#include "datasets/python_text.h"
#include "harness/core/files.h"
#include "tests/datasets/support.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

TEST(LongMemEval, PromptsAreThoseOfTheOfficialCode) {
  const nlohmann::json fixture = nlohmann::json::parse(
      read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_longmemeval.json"));
  ASSERT_EQ(fixture["prompts"].size(), 5U);
  size_t compared = 0;
  for (const nlohmann::json& made : fixture["prompts"]) {
    const nlohmann::json parameters = {
        {"history", made["history"]}, {"reading", made["reading"]}, {"sessions", made["sessions"]}};
    const auto samples = all_samples(fmt::format("longmemeval/{}", made["set"].get<std::string>()), parameters.dump(),
                                     {.data_dir = samples_dir()});
    ASSERT_GE(samples.size(), 20U);
    ASSERT_EQ(samples.size(), made["prompts"].size());
    compared += samples.size();
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(sha256(samples[i].messages.at(0).content).substr(0, 12), made["prompts"][i].get<std::string>())
          << parameters;
      EXPECT_TRUE(question_text(samples[i]).starts_with("\n\nCurrent Date: 2024/")) << question_text(samples[i]);
      EXPECT_EQ(samples[i].generation.max_new_tokens, made["reading"] == "con" ? 800 : 500);
    }
  }
  testing::compared_prompts("longmemeval", compared);
}

TEST(LongMemEval, TypesAreAllOfTheRowsAndAbstentionCrossesThem) {
  const auto of = [](const std::string& type) {
    return all_samples("longmemeval/oracle", nlohmann::json{{"question_type", type}}.dump(),
                       {.data_dir = samples_dir()});
  };
  size_t typed = 0;
  for (const char* type : {"single-session-user", "single-session-assistant", "single-session-preference",
                           "multi-session", "temporal-reasoning", "knowledge-update"}) {
    const auto samples = of(type);
    EXPECT_GE(samples.size(), 4U) << type;
    for (const Sample& sample : samples) EXPECT_EQ(nlohmann::json::parse(sample.extras)["question_type"], type);
    typed += samples.size();
  }
  EXPECT_EQ(typed, of("all").size());
  EXPECT_EQ(of("abstention").size(), 4U);
  for (const Sample& sample : of("abstention")) EXPECT_TRUE(sample.id.ends_with("_abs")) << sample.id;
}

TEST(LongMemEval, AnswersThatAreNumbersBecomeTexts) {
  for (const Sample& sample :
       all_samples("longmemeval/oracle", R"({"question_type": "multi-session"})", {.data_dir = samples_dir()})) {
    EXPECT_GE(std::stoi(sample.references.at(0)), 4) << sample.id;
  }
}

TEST(LongMemEval, ASessionWithoutADateIsAnError) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kvarena_longmemeval_{}", ::getpid());
  std::filesystem::create_directories(folder / "longmemeval");
  std::ofstream(folder / "longmemeval" / "longmemeval_s.json")
      << R"([{"question_id": "1", "question_type": "multi-session", "question": "What?", "answer": 2,
             "question_date": "2024/01/01", "haystack_dates": [], "haystack_sessions": [[]]}])";
  const std::string message = error_of([&] { (void)all_samples("longmemeval/s", "{}", {.data_dir = folder}); });
  std::filesystem::remove_all(folder);
  EXPECT_NE(message.find("longmemeval_s.json:1: haystack_sessions: found 1 sessions"), std::string::npos) << message;
}

TEST(PythonStrip, TakesWhiteSpaceOfAnyScript) {
  EXPECT_EQ(python_strip("\u3000 \t\x1f\u00a0a \u200bb\u2028\n\u0085"), "a \u200bb");
  EXPECT_EQ(python_strip("é"), "é");
  EXPECT_EQ(python_strip(" \u2003 \n"), "");
}

TEST(PythonJson, WritesAsJsonDumps) {
  EXPECT_EQ(python_json(Row::parse(R"([{"b":"é\n\u007f\"/😀","a":[1,true,null,{}]},[]])")),
            R"([{"b": "\u00e9\n\u007f\"/\ud83d\ude00", "a": [1, true, null, {}]}, []])");
}

}  // namespace
}  // namespace kvarena::datasets
