// The writer's lock, and error messages when writing is impossible.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "tests/harness/results/support.h"

namespace kvarena::results {
namespace {

void fill(const std::filesystem::path& path, int samples) {
  auto store = ResultsStore::open_or_create(path);
  store.upsert_cells(std::array{small_cell("a", "full")});
  for (int i = 0; i < samples; ++i) store.commit("run", std::array{small_sample("a", i)});
}

TEST(Writer, SecondProcessIsRefusedWithTheHoldersNameAndReadersAreNot) {
  const TemporaryFolder folder;
  const auto path = folder / "r.db";
  auto store = ResultsStore::open_or_create(path);
  store.upsert_cells(std::array{small_cell("a", "full")});
  store.commit("run", std::array{small_sample("a", 0)});

  const std::string message = in_child([&] { (void)ResultsStore::open_or_create(path); });
  EXPECT_EQ(message.rfind(path.string() + ": found a database that another run writes to", 0), 0U) << message;
  EXPECT_NE(message.find(fmt::format("process {}", ::getpid())), std::string::npos) << message;

  // A reader sees what is committed, and what is committed while it is open.
  const ResultsReader reader(path);
  EXPECT_EQ(reader.done_samples("a").size(), 1U);
  store.commit("run", std::array{small_sample("a", 1)});
  EXPECT_EQ(reader.done_samples("a").size(), 2U);
}

TEST(Writer, SecondStoreInTheSameProcessIsRefusedToo) {
  const TemporaryFolder folder;
  const auto first = ResultsStore::open_or_create(folder / "r.db");
  EXPECT_THROW((void)ResultsStore::open_or_create(folder / "r.db"), UserError);
}

TEST(Writer, SecondStoreUnderAnotherNameIsRefusedToo) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("r.db", folder / "alias.db");
  const auto first = ResultsStore::open_or_create(folder / "alias.db");
  EXPECT_TRUE(std::filesystem::exists(folder / "r.db"));
  EXPECT_THROW((void)ResultsStore::open_or_create(folder / "r.db"), UserError);
}

TEST(Writer, NamesUnderWhichNothingWouldStayAreRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::filesystem::path& path :
       {std::filesystem::path(), std::filesystem::path(":memory:"), std::filesystem::path("/dev/null"),
        std::filesystem::path(folder / "pipe"), std::filesystem::path(folder.path())}) {
    EXPECT_THROW((void)ResultsStore::open_or_create(path), UserError) << path;
  }
  EXPECT_THROW((void)ResultsReader(folder / "pipe"), UserError);
}

TEST(Writer, ANameIsNeverAnAddressWithOptions) {
  const TemporaryFolder folder;
  const std::string message = in_child([&] {
    std::filesystem::current_path(folder.path());
    fill("file:r.db?mode=memory", 2);
    if (!std::filesystem::exists("file:r.db?mode=memory")) throw UserError("no file");
    if (ResultsReader("file:r.db?mode=memory").samples("a").size() != 2) throw UserError("no samples");
  });
  EXPECT_EQ(message, "");
}

TEST(Writer, AFileThatIsRemovedOrReplacedWhileItIsWrittenIsNoticed) {
  const TemporaryFolder folder;
  for (const bool replaced : {false, true}) {
    const auto path = folder / (replaced ? "replaced.db" : "removed.db");
    auto store = ResultsStore::open_or_create(path);
    store.upsert_cells(std::array{small_cell("a", "full")});
    std::filesystem::remove(path);
    if (replaced) write_file(path, "another");
    try {
      store.commit("run", std::array{small_sample("a", 0)});
      FAIL() << "committed to nowhere";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("removed, renamed or replaced"), std::string::npos) << error.what();
    }
  }
}

TEST(Writer, PlaceIsFreeAfterTheEndAndAfterAKill) {
  const TemporaryFolder folder;
  const auto path = folder / "r.db";
  fill(path, 1);
  EXPECT_FALSE(std::filesystem::exists(path.string() + "-lock")) << "nothing is left behind";
  const std::string death = in_child([&] {
    auto store = ResultsStore::open_or_create(path);
    store.commit("run", std::array{small_sample("a", 1)});
    ::raise(SIGKILL);
  });
  EXPECT_EQ(death, "signal 9");
  auto store = ResultsStore::open_or_create(path);
  EXPECT_EQ(store.read().done_samples("a").size(), 2U) << "what was committed survives";
}

TEST(Writer, FolderThatCannotBeWrittenIsNamedBeforeAnyWork) {
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec |
                                                  std::filesystem::perms::others_read |
                                                  std::filesystem::perms::others_exec);
  const std::string message = in_child([&] { (void)ResultsStore::open_or_create(folder / "r.db"); }, true);
  EXPECT_EQ(message.rfind((folder / "r.db").string(), 0), 0U) << message;
  EXPECT_NE(message.find("Permission denied"), std::string::npos) << message;
  EXPECT_THROW((void)ResultsStore::open_or_create(folder / "absent/r.db"), UserError);
}

TEST(Writer, ReadOnlyDatabaseIsRefusedAndStillReadable) {
  const TemporaryFolder folder;
  const auto path = folder / "r.db";
  fill(path, 2);
  using std::filesystem::perms;
  std::filesystem::permissions(path, perms::owner_read | perms::group_read | perms::others_read);
  std::filesystem::permissions(folder.path(), perms::all);
  const std::string message = in_child([&] { (void)ResultsStore::open_or_create(path); }, true);
  EXPECT_EQ(message.rfind(path.string(), 0), 0U) << message;
  EXPECT_NE(message.find("readonly"), std::string::npos) << message;
  EXPECT_NE(message.find("give write permission"), std::string::npos) << message;

  // An archive: neither the file nor the folder can be written.
  std::filesystem::permissions(folder.path(),
                               perms::owner_read | perms::owner_exec | perms::others_read | perms::others_exec);
  const std::string reading = in_child(
      [&] {
        const size_t samples = ResultsReader(path).samples("a").size();
        if (samples != 2) throw UserError("found " + std::to_string(samples));
      },
      true);
  EXPECT_EQ(reading, "");
}

TEST(Writer, FullDiskStopsWithASentenceAndLosesNothingCommitted) {
  const TemporaryFolder folder;
  const auto path = folder / "r.db";
  fill(path, 3);
  // A limit on file size stands for a full disk: writes fail in the middle of the log.
  const std::string message = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    auto store = ResultsStore::open_or_create(path);
    const struct rlimit limit { 300'000, 300'000 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 3; i < 100000; ++i) {
      SampleResult sample = small_sample("a", i);
      sample.prediction.assign(2000, 'x');
      store.commit("run", std::array{sample});
    }
  });
  EXPECT_EQ(message.rfind(path.string(), 0), 0U) << message;
  EXPECT_NE(message.find("what was committed is kept"), std::string::npos) << message;
  auto store = ResultsStore::open_or_create(path);
  const size_t done = store.read().done_samples("a").size();
  EXPECT_GT(done, 3U);
  for (const SampleResult& sample : store.read().samples("a")) {
    EXPECT_EQ(store.read().sample_values("a", sample.sample_id).size(), 2U) << "half a sample " << sample.sample_id;
  }
}

}  // namespace
}  // namespace kvarena::results
