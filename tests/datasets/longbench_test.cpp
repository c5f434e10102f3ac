#include <set>

#include "datasets/data_files.h"
#include "harness/core/files.h"
#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

std::vector<std::string> longbench_names(const std::string& family) {
  std::vector<std::string> names;
  for (const WorkloadEntry& entry : workloads()) {
    if (entry.info.family == family) names.push_back(entry.info.name.substr(family.size() + 1));
  }
  return names;
}

TEST(LongBench, HasAll21TasksAndThe13OfE) {
  EXPECT_EQ(longbench_names("longbench").size(), 21u);
  EXPECT_EQ(longbench_names("longbench-e").size(), 13u);
}

// The golden file was made with Python's str.format and the official prompt file.
TEST(LongBench, PromptsOfTheProjectMadeRowsEqualTheOfficialOnesCharacterForCharacter) {
  const auto golden = nlohmann::json::parse(
      read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_longbench_prompts.json"));
  size_t files = 0;
  for (const std::string family : {"longbench", "longbench-e"}) {
    size_t compared = 0;
    for (const std::string& task : longbench_names(family)) {
      std::vector<std::string> hashes;
      for (const Sample& sample : all_samples(family + "/" + task, "{}", {.data_dir = samples_dir()})) {
        ASSERT_EQ(sample.messages.size(), 1u);
        hashes.push_back(sha256(sample.messages[0].content));
        EXPECT_EQ(sample.origin, "project-made sample");
      }
      const std::string file = task + (family == "longbench" ? "" : "_e");
      EXPECT_EQ(hashes, golden["sha256"].at(file).get<std::vector<std::string>>()) << file;
      compared += hashes.size();
      ++files;
    }
    testing::compared_prompts(family, compared);
  }
  EXPECT_EQ(files, golden["sha256"].size());
}

TEST(LongBench, SettingsEqualTheOfficialFilesWherePresent) {
  const auto path = shared_data() / "longbench" / "config" / "dataset2maxlen.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no official configuration at " << path;
  const auto limits = nlohmann::json::parse(read_file(path));
  for (const std::string& task : longbench_names("longbench")) {
    EXPECT_EQ(find_workload("longbench/" + task, "test").info.generation.max_new_tokens, limits.at(task)) << task;
  }
}

// Rendered here a second way: the official text with the two place-holders cut out by hand.
TEST(LongBench, OfficialRowsGiveTheOfficialPromptWherePresent) {
  const auto data = shared_data() / "longbench";
  if (!std::filesystem::exists(data / "rows")) GTEST_SKIP() << "no official rows at " << data;
  const auto prompts = nlohmann::json::parse(read_file(data / "config" / "dataset2prompt.json"));
  size_t rows_seen = 0;
  for (const std::string& task : longbench_names("longbench")) {
    const auto file = find_data_file(find_workload("longbench/" + task, "test").info, shared_data());
    ASSERT_TRUE(file) << task;
    const auto rows = json_lines(file->path);
    const auto samples = all_samples("longbench/" + task, "{}", {.data_dir = shared_data()});
    ASSERT_EQ(samples.size(), rows.size()) << task;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::string expected = prompts.at(task);
      const std::string context = rows[i]["context"];
      if (const size_t input = expected.find("{input}"); input != std::string::npos) {
        expected = expected.substr(0, input) + rows[i]["input"].get<std::string>() + expected.substr(input + 7);
      }
      const size_t slot = expected.find("{context}");
      expected = expected.substr(0, slot) + context + expected.substr(slot + 9);
      EXPECT_EQ(samples[i].messages[0].content, expected) << task << " row " << i;
      EXPECT_EQ(samples[i].question.byte, slot + context.size()) << task;
      EXPECT_EQ(samples[i].references, rows[i]["answers"].get<std::vector<std::string>>());
      EXPECT_EQ(samples[i].id, rows[i]["_id"].get<std::string>());
      if (!samples[i].chat_template) {
        EXPECT_EQ(samples[i].prompt_sha256, sha256(expected)) << task;
      }
      ++rows_seen;
    }
  }
  EXPECT_GT(rows_seen, 21u);
}

TEST(LongBench, CompletionTasksTakeNoChatTemplate) {
  for (const std::string& task : longbench_names("longbench")) {
    const bool completion = task == "trec" || task == "triviaqa" || task == "samsum" || task == "lsht" ||
                            task == "lcc" || task == "repobench-p";
    EXPECT_EQ(find_workload("longbench/" + task, "test").info.chat_template, !completion) << task;
  }
}

TEST(LongBench, SamsumAloneStopsAtANewline) {
  for (const std::string& task : longbench_names("longbench")) {
    const Generation& generation = find_workload("longbench/" + task, "test").info.generation;
    EXPECT_EQ(generation.stop_token_of, task == "samsum" ? "\n" : "");
    EXPECT_EQ(generation.min_new_tokens, task == "samsum" ? 1 : 0);
  }
}

TEST(LongBench, FewShotTasksAskTheScorerForTheFirstLine) {
  const auto trec = all_samples("longbench/trec", "{}", {.data_dir = samples_dir()});
  const auto extras = nlohmann::json::parse(trec.at(0).extras);
  EXPECT_EQ(extras["first_line_only"], true);
  EXPECT_EQ(extras["all_classes"].size(), 6u);
  const auto qasper = all_samples("longbench/qasper", "{}", {.data_dir = samples_dir()});
  EXPECT_FALSE(nlohmann::json::parse(qasper.at(0).extras).contains("first_line_only"));
}

TEST(LongBench, ContextsOfTwelveTasksComeByTurns) {
  const auto all = all_samples("longbench-contexts", "{}", {.data_dir = samples_dir()});
  ASSERT_EQ(all.size(), 12 * 5U) << "five rows a task";
  std::set<std::string> ids;
  for (size_t i = 0; i < all.size(); ++i) {
    ids.insert(all[i].id);
    const std::string task = all[i].id.substr(0, all[i].id.find('/'));
    EXPECT_EQ(all[i].id.starts_with(all[i % 12].id.substr(0, task.size() + 1)), true) << all[i].id;
    const Sample own = all_samples("longbench/" + task, "{}", {.data_dir = samples_dir()}).at(i / 12);
    EXPECT_EQ(all[i].id, task + "/" + own.id);
    EXPECT_EQ(all[i].prompt_sha256, own.prompt_sha256);
    EXPECT_EQ(all[i].chat_template, own.chat_template);
    EXPECT_EQ(all[i].generation.max_new_tokens, own.generation.max_new_tokens);
    EXPECT_EQ(all[i].question.byte, own.question.byte);
  }
  EXPECT_EQ(ids.size(), all.size());
}

TEST(LongBench, LongPromptsAreCutInTheMiddleAndKeepTheQuestion) {
  const WordTokens tokens;
  const auto whole = all_samples("longbench/qasper", "{}", {.data_dir = samples_dir(), .tokens = &tokens});
  const auto cut =
      all_samples("longbench/qasper", "{}", {.data_dir = samples_dir(), .tokens = &tokens, .max_prompt_tokens = 400});
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].truncation.tokens_before, 0);
    EXPECT_EQ(cut[i].truncation.tokens_before - cut[i].truncation.tokens_removed, 400);
    EXPECT_EQ(question_text(cut[i]), question_text(whole[i]));
    EXPECT_NE(cut[i].prompt_sha256, whole[i].prompt_sha256);
    EXPECT_EQ(cut[i].data_sha256, whole[i].data_sha256);
  }
}

TEST(LongBench, AMissingFileSaysWhatToFetch) {
  const std::string message = error_of([] {
    (void)all_samples("longbench/qasper", "{}", {.data_dir = std::filesystem::path(KVARENA_SOURCE_DIR) / "cmake"});
  });
  EXPECT_NE(message.find("qasper.jsonl"), std::string::npos);
  EXPECT_NE(message.find("`kvarena workloads pull longbench/qasper` fetches it, or by hand: curl"), std::string::npos)
      << message;
}

TEST(LongBench, ARowWithoutAFieldNamesFileAndLine) {
  const auto folder = std::filesystem::temp_directory_path() / ("kvarena_longbench_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "longbench");
  std::ofstream(folder / "longbench" / "qasper.jsonl")
      << R"({"_id": "1", "context": "c", "answers": ["a"], "length": 1})";
  const std::string message = error_of([&] { (void)all_samples("longbench/qasper", "{}", {.data_dir = folder}); });
  std::filesystem::remove_all(folder);
  EXPECT_NE(message.find("qasper.jsonl:1: found a row without \"input\""), std::string::npos) << message;
}

}  // namespace
}  // namespace kvarena::datasets
