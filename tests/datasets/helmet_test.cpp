// HELMET's prompts, and which rows are asked, against the official code; the fixture and its script are
// tests/golden/datasets_helmet.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "datasets/data_files.h"
#include "datasets/numpy_permutation.h"
#include "harness/core/files.h"
#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

const json& fixture() {
  static const json kFixture =
      json::parse(read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_helmet.json"));
  return kFixture;
}

std::string digest(const Sample& sample) { return sha256(sample.messages.at(0).content).substr(0, 12); }

TEST(Helmet, PromptsWholeAndCutAreThoseOfTheOfficialCode) {
  const WordTokens tokens;
  ASSERT_EQ(fixture()["prompts"].size(), 12U);
  size_t compared = 0;
  for (const auto& [task, expected] : fixture()["prompts"].items()) {
    const auto whole = all_samples("helmet/" + task, "{}", {.data_dir = samples_dir()});
    const OpenSettings limited{.data_dir = samples_dir(), .tokens = &tokens, .max_prompt_tokens = expected["limit"]};
    const auto cut = all_samples("helmet/" + task, "{}", limited);
    ASSERT_GE(whole.size(), 20U);
    std::vector<json> rows;
    for (size_t i = 0; i < whole.size(); ++i) {
      const bool labelled = task.starts_with("icl");
      rows.push_back({digest(whole[i]), digest(cut.at(i)), labelled ? whole[i].references[0] : ""});
      EXPECT_EQ(whole[i].has_context(), !task.starts_with("alce"));
      if (!task.starts_with("alce")) {
        EXPECT_EQ(question_text(cut[i]), question_text(whole[i]));
      }
      EXPECT_GT(cut[i].truncation.tokens_removed, 0);
    }
    std::ranges::sort(rows);
    EXPECT_EQ(json(rows), expected["rows"]) << task;
    compared += rows.size();
  }
  testing::compared_prompts("helmet", 2 * compared);
}

/// The rows that the script makes, of which some are asked.
class ManyRows : public ::testing::Test {
 protected:
  ~ManyRows() override { std::filesystem::remove_all(folder_); }

  void write(const char* name, int64_t count, const std::function<json(int64_t)>& row) const {
    const auto path = folder_ / "helmet" / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path);
    for (int64_t i = 0; i < count; ++i) file << row(i) << "\n";
  }

  void expect_official(const std::string& task) const {
    std::vector<std::string> digests;
    for (const Sample& sample : all_samples("helmet/" + task, "{}", {.data_dir = folder_}))
      digests.push_back(digest(sample));
    std::ranges::sort(digests);
    std::string all;
    for (const std::string& one : digests) all += one;
    EXPECT_EQ(json({digests.size(), sha256(all).substr(0, 12)}), fixture()["many"][task]);
  }

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / fmt::format("kvarena_helmet_{}", ::getpid());
};

json asked(const char* name, int64_t i, const char* documents) {
  return {{"question", fmt::format("{}{}", name, i)},
          {"answers", {fmt::format("a{}", i)}},
          {"answer", "a"},
          {documents, {{{"title", fmt::format("t{}", i)}, {"text", fmt::format("x{}", i)}}}}};
}

TEST_F(ManyRows, ExamplesAndTestedRowsAreBalancedByLabel) {
  write("icl/nlu_train.jsonl", 30, [](int64_t i) {
    return json{{"text", fmt::format("train {}", i)}, {"label", i % 5}};
  });
  write("icl/nlu_test.jsonl", 600, [](int64_t i) {
    return json{{"text", fmt::format("test {}", i)}, {"label", i * i % 7}};
  });
  expect_official("icl_nlu");
}

TEST_F(ManyRows, AHundredQuestionsAreAskedOverPassages) {
  write("data/kilt/nq-dev-multikilt_1000_k50_dep6.jsonl", 150, [](int64_t i) { return asked("q", i, "ctxs"); });
  write("data/kilt/nq-train-multikilt_1000_k3_dep6.jsonl", 20, [](int64_t i) { return asked("d", i % 10, "ctxs"); });
  expect_official("kilt_nq");
}

TEST_F(ManyRows, AHundredQuestionsAreAskedForCitations) {
  write("data/alce/qampari_eval_gtr_top2000.json", 150, [](int64_t i) {
    json row = asked("q", i, "docs");
    row["answers"] = {{fmt::format("a{}", i)}};
    return row;
  });
  write("prompts/qampari_revised.json", 1, [](int64_t) {
    json prompts = {
        {"instruction", "I"}, {"demo_prompt", "{question} {context} {answer}"}, {"doc_prompt", "{title} {text}"}};
    for (int64_t i = 0; i < 4; ++i) prompts["demos"].push_back(asked("d", i, "docs"));
    return prompts;
  });
  expect_official("alce_qampari");
}

TEST_F(ManyRows, AFileWithoutDemonstrationsNamesTheOneThatIsMissing) {
  write("data/kilt/nq-dev-multikilt_1000_k105_dep6.jsonl", 1, [](int64_t i) { return asked("q", i, "ctxs"); });
  const std::string error = error_of(
      [&] { (void)make_workload("helmet/kilt_nq", R"({"length": "16k"})", "test")->open({.data_dir = folder()}); });
  EXPECT_NE(error.find("no nq-train-multikilt_1000_k3_dep6.jsonl below"), std::string::npos) << error;
}

TEST(NumpyPermutation, IsNumpys) {
  EXPECT_EQ(numpy_permutation(42, 8), (std::vector<uint32_t>{3, 4, 2, 7, 6, 1, 5, 0}));
  EXPECT_EQ(numpy_permutation(2147483647, 9), (std::vector<uint32_t>{1, 8, 3, 2, 0, 7, 5, 6, 4}));
  EXPECT_EQ(numpy_permutation(0, 1), std::vector<uint32_t>{0});
}

}  // namespace
}  // namespace kvarena::datasets
