// Pages of docs/ against the program: docs/methods and docs/workloads.md, which it writes, and docs/add-a-method.md.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "harness/core/files.h"
#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

std::set<std::string> files_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST(MethodPages, AreWhatTheProgramWrites) {
  const ScratchFolder scratch;
  const std::filesystem::path made = scratch.path() / "methods";
  const std::filesystem::path kept = std::filesystem::path(KVARENA_SOURCE_DIR) / "docs" / "methods";
  const Finished finished = run_kvarena({"methods", "--pages", made.string()});
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(files_in(made), files_in(kept));
  for (const std::string& name : files_in(made)) {
    EXPECT_EQ(read_file(made / name), read_file(kept / name))
        << "docs/methods/" << name << " is old; write it with `kvarena methods --pages docs/methods`";
  }
}

TEST(WorkloadPage, IsWhatTheProgramWrites) {
  const ScratchFolder scratch;
  const std::filesystem::path made = scratch.path() / "workloads.md";
  const Finished finished = run_kvarena({"workloads", "--page", made.string()});
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(read_file(made), read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "docs" / "workloads.md"))
      << "docs/workloads.md is old; write it with `kvarena workloads --page docs/workloads.md`";
}

TEST(MethodPages, AreRefusedWhereTheyCannotBe) {
  const ScratchFolder scratch;
  write_file(scratch.path() / "taken", "a file");
  expect_refused(run_kvarena({"methods", "--pages", (scratch.path() / "taken").string()}), "taken");
}

/// The text of the first block fenced as `language`.
std::string fenced(const std::string& page, const std::string& language) {
  const std::string fence = "```" + language + "\n";
  const size_t begin = page.find(fence) + fence.size();
  return page.substr(begin, page.find("```", begin) - begin);
}

TEST(Tutorial, ShowsTheSkeletonAndAConfigThatHolds) {
  const std::string page = read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "docs" / "add-a-method.md");
  const ScratchFolder scratch;
  const std::string file = (scratch.path() / "my_idea.cpp").string();
  ASSERT_EQ(run_kvarena({"new-method", "my_idea", "--family", "dropping", "--out", file}).code, 0);
  const std::string rule = "return layer.keys().norm(2, -1).neg();";
  EXPECT_TRUE(contains(fenced(page, "cpp"), rule));
  EXPECT_TRUE(contains(read_file(file), rule));

  if (!default_model_is_there()) GTEST_SKIP() << "no default model; scripts/setup brings it";
  std::string config = fenced(page, "json");
  const std::string mine = R"("name": "my_idea", "matrix")";
  ASSERT_TRUE(contains(config, mine));
  config.replace(config.find(mine), mine.size(), R"("name": "knorm", "matrix")");  // one that is registered
  write_file(scratch.path() / "my_idea.json", config);
  const Finished plan = run_kvarena({"run", "my_idea.json", "--dry-run"}, {.folder = scratch.path()});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_TRUE(contains(plan.out, "21 cells")) << plan.out;
}

}  // namespace
}  // namespace kvarena::testing
