// Prompts of the user's own.

#include <gtest/gtest.h>

#include "tests/datasets/support.h"

namespace kvarena::datasets {
namespace {

std::vector<Sample> rows(const std::string& text, nlohmann::json parameters = nlohmann::json::object()) {
  const TemporaryFile file("mine.jsonl", text);
  parameters["file"] = file.path().string();
  return all_samples("prompts", parameters.dump());
}

std::string refused(const std::string& text, const nlohmann::json& parameters = nlohmann::json::object()) {
  return error_of([&] { (void)rows(text, parameters); });
}

TEST(Prompts, ARowIsAPromptAndItsReferences) {
  const auto samples = rows(R"({"prompt": "Capital of France?", "references": ["Paris", "paris"]})"
                            "\n"
                            R"({"id": "b", "prompt": "Of Spain?", "references": ["Madrid"], "extras": {"k": 1}})"
                            "\n");
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].id, "0");
  EXPECT_EQ(samples[0].messages.at(0).content, "Capital of France?");
  EXPECT_EQ(samples[0].references, (std::vector<std::string>{"Paris", "paris"}));
  EXPECT_TRUE(samples[0].chat_template);
  EXPECT_FALSE(samples[0].has_context());
  EXPECT_EQ(samples[1].id, "b");
  EXPECT_EQ(samples[1].extras, R"({"k":1})");
  EXPECT_TRUE(samples[0].origin.ends_with("mine.jsonl"));
}

TEST(Prompts, AContextStandsBeforeItsQuestionsAndIsShared) {
  const auto samples = rows(R"({"context": "A long text. ", "prompt": "First?", "references": ["1"]})"
                            "\n"
                            R"({"context": "A long text. ", "prompt": "Second?", "references": ["2"]})"
                            "\n"
                            R"({"context": "Another. ", "prompt": "Second?", "references": ["2"]})"
                            "\n");
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[0].messages.at(0).content, "A long text. First?");
  EXPECT_EQ(question_text(samples[0]), "First?");
  EXPECT_EQ(samples[0].context, samples[1].context);
  EXPECT_NE(samples[1].context, samples[2].context);
}

TEST(Prompts, TheLastMessageIsTheQuestion) {
  const auto samples = rows(
      R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}], "references": ["x"]})"
      "\n");
  EXPECT_EQ(samples.at(0).messages.size(), 2U);
  EXPECT_EQ(question_text(samples[0]), "Why?");
  EXPECT_TRUE(samples[0].has_context());
}

TEST(Prompts, ParametersDescribeTheWorkload) {
  const TemporaryFile file("own.jsonl", R"({"prompt": "a"})"
                                        "\n");
  const nlohmann::json parameters = {
      {"file", file.path().string()}, {"metric", "kl"}, {"chat", false}, {"max_new_tokens", 7}, {"stop", "\n"}};
  const auto workload = make_workload("prompts", parameters.dump(), "test");
  EXPECT_EQ(workload->info().metrics, std::vector<std::string>{"kl"});
  EXPECT_EQ(workload->info().source, file.path().string());
  const auto samples = all_samples("prompts", parameters.dump());
  EXPECT_FALSE(samples.at(0).chat_template);
  EXPECT_EQ(samples[0].generation.max_new_tokens, 7);
  EXPECT_EQ(samples[0].generation.stop, std::vector<std::string>{"\n"});
}

TEST(Prompts, MistakesNameLineAndField) {
  EXPECT_TRUE(refused(R"({"prompt": "a", "refrences": ["b"]})").ends_with("did you mean \"references\"?"))
      << refused(R"({"prompt": "a", "refrences": ["b"]})");
  EXPECT_NE(refused("{\"prompt\": \"a\", \"references\": [\"b\"]}\n{\"references\": [\"b\"]}").find("mine.jsonl:2"),
            std::string::npos);
  EXPECT_NE(refused(R"({"prompt": "a"})").find("references"), std::string::npos) << "qa_f1 needs them";
  EXPECT_NE(refused(R"({"prompt": "a", "messages": [], "references": []})").find("both"), std::string::npos);
  EXPECT_NE(error_of([] { (void)all_samples("prompts"); }).find("prompts.file: found nothing"), std::string::npos);
  EXPECT_NE(error_of([] { (void)all_samples("prompts", R"({"file": "absent.jsonl"})"); }).find("no file "),
            std::string::npos);
}

}  // namespace
}  // namespace kvarena::datasets
