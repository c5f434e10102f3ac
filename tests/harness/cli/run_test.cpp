// kvarena run: what stops it before anything is written, and what a plan shows.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "harness/core/files.h"
#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"
#include "tests/support/tiny_adapter.h"

namespace kvarena::testing {
namespace {

namespace fs = std::filesystem;

const std::string kQuickstart = KVARENA_SOURCE_DIR "/configs/quickstart.json";

fs::path write_config(const ScratchFolder& folder, const std::string& text) {
  std::ofstream(folder / "config.json") << text;
  return folder / "config.json";
}

TEST(Run, AllProblemsOfAConfigAreListedAndNothingIsWritten) {
  const ScratchFolder scratch;
  const fs::path config = write_config(scratch, R"({
    "name": "bad", "models": ["smollm2-135m"], "workloads": [{"name": "needel"}],
    "methods": ["full", {"name": "snap_kv", "keep": 0.5}, {"name": "snapkv", "keep": 1.4}],
    "engin": {"seed": 1}, "output": {"database": "results.db"}})");
  const Finished finished = run_kvarena({"run", config.string()}, {.folder = scratch.path()});
  EXPECT_EQ(finished.code, 2);
  EXPECT_EQ(finished.out, "");
  EXPECT_EQ(finished.err.rfind("kvarena: ", 0), 0U);
  for (const char* part : {"problems\n", "config.json", "\"engine\"", "\"needle\"", "\"snapkv\"", "keep: found 1.4"}) {
    EXPECT_TRUE(contains(finished.err, part)) << part << "\n" << finished.err;
  }
  EXPECT_EQ(scratch.content(), std::vector<std::string>{"config.json"});
}

TEST(Run, AConfigThatIsNoJsonNamesLineAndColumn) {
  const ScratchFolder scratch;
  const fs::path config = write_config(scratch, "{\n  \"name\": \"x\",\n  oops\n}\n");
  const Finished finished = run_kvarena({"run", config.string()}, {.folder = scratch.path()});
  expect_refused(finished, "config.json");
  EXPECT_TRUE(contains(finished.err, "3")) << finished.err;
  expect_refused(run_kvarena({"run", "no/such.json"}), "no/such.json");
  expect_refused(run_kvarena({"run"}), "CONFIG: found nothing");
}

TEST(Run, AnOverrideOfNothingIsRefused) {
  const ScratchFolder scratch;
  const RunSetup here{.folder = scratch.path()};
  expect_refused(run_kvarena({"run", kQuickstart, "--set", "engine.sed=3"}, here), "sed");
  expect_refused(run_kvarena({"run", kQuickstart, "--set", "engine.seed"}, here), "engine.seed");
  expect_refused(run_kvarena({"run", kQuickstart, "--set", "output.report=page.docx"}, here), "page.docx");
  expect_refused(run_kvarena({"run", kQuickstart, "--limit", "many"}, here),
                 "--limit: found \"many\", expected an integer");
  EXPECT_TRUE(scratch.content().empty());
}

TEST(Run, AModelThatIsNotThereSaysHowToGetIt) {
  const ScratchFolder scratch;
  const RunSetup setup{.environment = {{"KVARENA_HOME", scratch.path().string()}}, .folder = scratch.path()};
  const Finished finished = run_kvarena({"run", kQuickstart, "--limit", "1"}, setup);
  expect_refused(finished, "scripts/setup");
  EXPECT_TRUE(scratch.content().empty());
  const Finished several = run_kvarena(
      {"run", kQuickstart, "--dry-run", "--model", "llama-3.1-8b-instruct", "--model", "org/Other-1.5"}, setup);
  expect_refused(several, "2 problems");
  for (const char* part : {"get it: hf download meta-llama/Llama-3.1-8B-Instruct", "model Other-1.5: found no ",
                           "get it: hf download org/Other-1.5"}) {
    EXPECT_TRUE(contains(several.err, part)) << part << "\n" << several.err;
  }
}

TEST(Run, DryRunShowsEveryCellAndWritesNothing) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  const Finished finished = run_kvarena({"run", kQuickstart, "--dry-run", "--limit", "1"}, {.folder = scratch.path()});
  ASSERT_EQ(finished.code, 0) << finished.err;
  for (const char* part : {"needle", "function_calling", "Full KV", "KIVI, 2 bits"}) {
    EXPECT_TRUE(contains(finished.out, part)) << part << "\n" << finished.out;
  }
  EXPECT_TRUE(scratch.content().empty());
}

TEST(Run, SaysWhichSamplesDoNotFitTheWindow) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  write_config(scratch, R"({
    "name": "small", "models": [{"name": "smollm2-135m", "window": 700}], "methods": ["full"],
    "workloads": [{"name": "needle", "limit": 4}], "engine": {"max_new_tokens": 2, "noise_floor": 0}})");
  const Finished plan = run_kvarena({"run", "config.json", "--dry-run"}, {.folder = scratch.path()});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_TRUE(contains(plan.out, "quality: 2 samples; 2 beyond the window of 700")) << plan.out;
  EXPECT_TRUE(contains(plan.err, "needle, quality: samples left out: 2 beyond the window of 700")) << plan.err;
}

TEST(Run, WritesTheReportThatItsConfigAsksForAndReportKnowsThePlace) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  const RunSetup here{.environment = {{"KVARENA_DATA", ""}}, .folder = scratch.path()};
  write_config(scratch, R"({
    "name": "small", "models": ["smollm2-135m"], "methods": ["full"], "workloads": ["longbench/qasper"],
    "engine": {"max_new_tokens": 2, "max_prompt_tokens": 256, "noise_floor": 0},
    "output": {"database": "small.db", "report": "small.md"}})");
  const std::string mark = "project-made sample, not LongBench qasper";
  const Finished plan = run_kvarena({"run", "config.json", "--limit", "1", "--dry-run"}, here);
  EXPECT_TRUE(contains(plan.out, "1 samples; " + mark)) << plan.out;
  EXPECT_TRUE(contains(plan.err, "longbench/qasper: " + mark)) << plan.err;
  const Finished finished = run_kvarena({"run", "config.json", "--limit", "1", "--quiet"}, here);
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.err, mark)) << finished.err;
  ASSERT_TRUE(fs::exists(scratch / "small.md"));
  EXPECT_TRUE(contains(read_file(scratch / "small.md"), mark));
  fs::remove(scratch / "small.md");
  EXPECT_EQ(run_kvarena({"report", "--database", "small.db"}, here).out, "");
  EXPECT_TRUE(fs::exists(scratch / "small.md"));
  EXPECT_TRUE(contains(run_kvarena({"report", "--database", "small.db", "--format", "md"}, here).out, "# "));
  EXPECT_TRUE(contains(run_kvarena({"status", "small.db"}, here).out, "data: longbench/qasper: " + mark));
}

TEST(Run, EndsWithWhatCameOut) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  write_config(scratch, R"({
    "name": "small", "models": ["smollm2-135m"], "workloads": ["fact_qa"],
    "methods": ["full", {"name": "streaming_llm", "keep": 0.5}],
    "engine": {"max_new_tokens": 2, "max_prompt_tokens": 256, "noise_floor": 0}, "output": {"database": "small.db"}})");
  const Finished finished = run_kvarena({"run", "config.json", "--limit", "1"}, {.folder = scratch.path()});
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "full KV's bytes, streaming_llm keep=0.5")) << finished.out;
  EXPECT_TRUE(contains(finished.out, "kvarena report --database small.db")) << finished.out;
}

TEST(Run, AMethodWhoseSecondReadingDoesNotFitTheWindowCostsItsOwnCell) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  const fs::path config = write_config(scratch, R"({
    "name": "small", "models": [{"name": "smollm2-135m", "window": 448}],
    "workloads": [{"name": "needle", "words": [200]}],
    "methods": ["full", {"name": "kvzip", "keep": 0.5}, {"name": "snapkv", "keep": 0.5}],
    "engine": {"max_new_tokens": 2, "noise_floor": 0}})");
  const Finished finished =
      run_kvarena({"run", config.string(), "--limit", "1", "--quiet"}, {.folder = scratch.path()});
  EXPECT_EQ(finished.code, 1);
  EXPECT_TRUE(contains(finished.out, "2 evaluated")) << finished.out;
  EXPECT_TRUE(contains(finished.out, "1 cells failed")) << finished.out;
  EXPECT_TRUE(contains(finished.err, "kvzip keep=0.5: failed: sample")) << finished.err;
  EXPECT_TRUE(contains(finished.err, "the model's window")) << finished.err;
}

TEST(Run, AnAdapterIsAModel) {
  const ScratchFolder scratch;
  const TinyModelFolder base(4096);
  const std::string adapter = scratch / "adapter";
  write_tiny_adapter(adapter, scratch / "unused", 0, {{"base_model_name_or_path", base.path()}});
  const fs::path config = write_config(scratch, R"({
    "name": "small", "models": ["smollm2-135m"], "workloads": [{"name": "needle", "words": [20], "samples": 1}],
    "methods": ["full", {"name": "snapkv", "keep": 0.5}], "engine": {"max_new_tokens": 2, "noise_floor": 0}})");
  const Finished finished =
      run_kvarena({"run", config.string(), "--model", adapter, "--quiet"}, {.folder = scratch.path()});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "2 evaluated")) << finished.out;
}

TEST(Run, AWorkloadOfOneSampleIsJudgedWhole) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  const fs::path config = write_config(scratch, R"({
    "name": "small", "models": ["smollm2-135m"], "methods": ["full"], "engine": {"max_new_tokens": 2, "noise_floor": 0},
    "workloads": [{"name": "fact_qa", "things": 4, "filler": 1, "samples": 1}]})");
  const Finished finished = run_kvarena({"run", config.string(), "--quiet"}, {.folder = scratch.path()});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "1 evaluated")) << finished.out;
}

TEST(Run, ADatabaseInWhichNothingWouldStayIsRefused) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  const RunSetup here{.folder = scratch.path()};
  for (const char* database : {"", ":memory:", "/dev/null"}) {
    expect_refused(run_kvarena({"run", kQuickstart, "--limit", "1", "--database", database}, here),
                   "the name of a file in which results stay");
  }
  EXPECT_TRUE(scratch.content().empty());
}

TEST(Submit, NamesThatWouldBecomeLinesOfAScriptAreRefusedAndBlanksAreQuoted) {
  const ScratchFolder scratch;
  const RunSetup here{.folder = scratch.path()};
  fs::copy(kQuickstart, scratch / "evil\ntouch here\n.json");
  fs::copy(kQuickstart, scratch / "plain.json");
  expect_refused(run_kvarena({"submit", "evil\ntouch here\n.json", "--slurm", "--dry-run"}, here), "CONFIG: found");
  expect_refused(run_kvarena({"submit", "plain.json", "--slurm", "--dry-run", "--sbatch=--x\ntouch here"}, here),
                 "--sbatch: found");
  expect_refused(run_kvarena({"submit", "plain.json", "--slurm", "--dry-run", "--folder", "a\"b"}, here),
                 "--folder: found");
  ASSERT_EQ(run_kvarena({"submit", "plain.json", "--slurm", "--dry-run", "--folder", "two words"}, here).code, 0);
  std::ifstream script(scratch / "two words" / "shards.sh");
  const std::string text(std::istreambuf_iterator<char>(script), {});
  EXPECT_TRUE(contains(text, "#SBATCH --output=\"" + (scratch / "two words" / "shard-%a.log").string() + "\"\n"))
      << text;
}

TEST(Run, LimitsAreNumbersThatMakeSense) {
  const ScratchFolder scratch;
  const RunSetup here{.folder = scratch.path()};
  expect_refused(run_kvarena({"run", kQuickstart, "--time-limit", "-1"}, here), "--time-limit: found -1");
  expect_refused(run_kvarena({"run", kQuickstart, "--memory-limit", "much"}, here), "--memory-limit");
  EXPECT_TRUE(scratch.content().empty());
}

TEST(Run, WorkersAreStartedByItAloneAndShownToNobody) {
  EXPECT_FALSE(contains(run_kvarena({"--help"}).out, "\n  worker "));
  EXPECT_FALSE(contains(run_kvarena({"workr"}).err, "worker"));
  expect_refused(run_kvarena({"worker"}), "--channel");
  expect_refused(run_kvarena({"worker", "--channel", "77"}), "workers are started by `kvarena run`");
}

TEST(Run, ADatabaseThatCannotBeWrittenStopsItBeforeAnyWork) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  std::ofstream(scratch / "notes.db") << "not a database, but somebody's notes";
  for (const std::string& database : {std::string("/proc/results.db"), (scratch / "notes.db").string()}) {
    expect_refused(
        run_kvarena({"run", kQuickstart, "--limit", "1", "--database", database}, {.folder = scratch.path()}),
        database);
  }
  std::ifstream notes(scratch / "notes.db");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(notes), {}), "not a database, but somebody's notes");
}

}  // namespace
}  // namespace kvarena::testing
