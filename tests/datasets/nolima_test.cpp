// NoLiMa against its authors' evaluation: the fixture and its script are tests/golden/datasets_nolima.
#include <algorithm>
#include <set>
#include <sstream>

#include "datasets/data_files.h"
#include "harness/core/files.h"
#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

const nlohmann::json& fixture() {
  static const nlohmann::json kFixture =
      nlohmann::json::parse(read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_nolima.json"));
  return kFixture;
}

std::vector<Sample> made(const std::string& parameters, const WordTokens* tokens) {
  return all_samples("nolima", parameters, {.data_dir = samples_dir(), .tokens = tokens});
}

TEST(NoLiMa, PromptsAreThoseOfTheAuthorsEvaluation) {
  const WordTokens tokens;
  size_t compared = 0;
  for (const auto& [length, prompts] : fixture().at("prompts").items()) {
    const nlohmann::json parameters = {
        {"context_length", std::stoll(length)}, {"depths", fixture().at("depths")}, {"books", 2}};
    std::vector<std::string> expected = prompts, found;
    for (const Sample& sample : made(parameters.dump(), &tokens)) {
      const std::string& prompt = sample.messages.at(1).content;
      found.push_back(sha256(prompt).substr(0, 12));
      EXPECT_LT(prompt.find(" " + sample.references.at(0)), sample.question.byte) << sample.id;
      EXPECT_EQ(sample.messages[0].content, "You are a helpful assistant");
    }
    ASSERT_GT(expected.size(), 400u);
    std::ranges::sort(expected);
    std::ranges::sort(found);
    EXPECT_EQ(found, expected);
    compared += found.size();
  }
  testing::compared_prompts("nolima", compared);
}

TEST(NoLiMa, NeedlesAndQuestionsOfTheProjectShareNoWord) {
  const auto words_of = [](std::string text) {
    for (char& c : text) c = std::isalpha(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(c)) : ' ';
    std::istringstream stream(text);
    std::set<std::string> words;
    for (std::string word; stream >> word;) {
      if (word.size() > 3) words.insert(word);
    }
    return words;
  };
  const auto needles = nlohmann::json::parse(read_file(samples_dir() / "nolima/needle_set.json"));
  for (const auto& row : needles) {
    for (const auto& [name, test] : row["tests"].items()) {
      const auto& words = test["input_args"];
      const auto said = words_of(row["needle"].get<std::string>() + " " + words[0].get<std::string>());
      for (const auto& [kind, question] : row["questions"].items()) {
        for (const std::string& word : words_of(question.get<std::string>() + " " + words[1].get<std::string>() + " " +
                                                words[2].get<std::string>())) {
          EXPECT_FALSE(said.contains(word)) << word << " in " << row["needle"];
        }
      }
    }
  }
}

TEST(NoLiMa, ABookThatIsTooShortIsNamed) {
  const WordTokens tokens;
  const std::string message = error_of([&] { (void)made(R"({"context_length": 100000})", &tokens); });
  EXPECT_NE(message.find("rand_book_1"), std::string::npos) << message;
  EXPECT_NE(message.find("context_length"), std::string::npos) << message;
}

}  // namespace
}  // namespace kvarena::datasets
