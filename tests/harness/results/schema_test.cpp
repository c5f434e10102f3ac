#include "harness/results/schema.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <array>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "tests/harness/results/support.h"
#include "tests/support/error_of.h"

namespace kvarena::results {
namespace {

constexpr Migration kOne{1, "0001_one", "CREATE TABLE t (a INTEGER) STRICT; INSERT INTO t VALUES (41);"};
constexpr Migration kTwo{2, "0002_two",
                         "ALTER TABLE t ADD COLUMN b TEXT NOT NULL DEFAULT 'new'; UPDATE t SET a = a + 1;"};
constexpr Migration kBroken{2, "0002_broken", "UPDATE t SET a = 0; INSERT INTO nowhere VALUES (1);"};

TEST(Schema, MigrationsAreNumberedWithoutGapsAndMatchTheFilesInTheTree) {
  int expected = 0;
  for (const Migration& migration : migrations()) {
    EXPECT_EQ(migration.version, ++expected);
    const auto file = std::filesystem::path(KVARENA_SOURCE_DIR) / "harness/results/migrations" /
                      (std::string(migration.name) + ".sql");
    EXPECT_EQ(std::string(migration.sql), read_file(file)) << file;
  }
  EXPECT_GE(expected, 1);
}

TEST(Schema, OldFileIsBroughtUpToDateAndKeepsItsRows) {
  SQLite::Database database(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  const std::array first = {kOne};
  const std::array both = {kOne, kTwo};
  migrate(database, "db", first);
  EXPECT_EQ(checked_version(database, "db", both), 1);
  migrate(database, "db", both);
  migrate(database, "db", both);  // nothing left to do
  EXPECT_EQ(checked_version(database, "db", both), 2);
  EXPECT_EQ(database.execAndGet("SELECT a || b FROM t").getString(), "42new");
}

TEST(Schema, FailedMigrationLeavesTheFileAsItWas) {
  SQLite::Database database(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  const std::array first = {kOne};
  const std::array broken = {kOne, kBroken};
  migrate(database, "db", first);
  EXPECT_NE(testing::error_of([&] { migrate(database, "db", broken); }).find("apply migration 0002_broken"),
            std::string::npos);
  EXPECT_EQ(checked_version(database, "db", broken), 1);
  EXPECT_EQ(database.execAndGet("SELECT a FROM t").getInt(), 41);
}

TEST(Schema, NewerFormatIsRefusedByReaderAndWriterWithoutTouchingTheFile) {
  const TemporaryFolder folder;
  const auto path = folder / "future.db";
  { const auto store = ResultsStore::open_or_create(path); }
  { SQLite::Database(path.string(), SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 99"); }
  const std::string before = read_file(path);
  for (const auto& open : {std::function<void()>([&] { (void)ResultsStore::open_or_create(path); }),
                           std::function<void()>([&] { (void)ResultsReader(path); })}) {
    const std::string message = testing::error_of(open);
    EXPECT_EQ(message.rfind(path.string(), 0), 0U) << message;
    EXPECT_NE(message.find("results in format 99, made by a newer kvarena"), std::string::npos) << message;
    EXPECT_NE(message.find("update kvarena"), std::string::npos) << message;
  }
  EXPECT_EQ(read_file(path), before);
}

TEST(Schema, FileOfAnotherProgramIsRefusedUntouched) {
  const TemporaryFolder folder;
  const auto path = folder / "other.db";
  { SQLite::Database(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE mine (x)"); }
  const std::string before = read_file(path);
  EXPECT_NE(testing::error_of([&] { (void)ResultsStore::open_or_create(path); }).find("a database of another program"),
            std::string::npos);
  EXPECT_NE(testing::error_of([&] { (void)ResultsReader(path); }).find("a database of another program"),
            std::string::npos);
  EXPECT_EQ(read_file(path), before);

  write_file(folder / "text.db",
             "this is no database, it is a text of more than a hundred bytes, as one might pass by "
             "mistake when names are alike");
  EXPECT_NE(testing::error_of([&] { (void)ResultsStore::open_or_create(folder / "text.db"); }).find("text.db: "),
            std::string::npos);
}

TEST(Schema, TruncatedDatabaseIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  const auto path = folder / "torn.db";
  {
    auto store = ResultsStore::open_or_create(path);
    const std::array cells = {small_cell("a", "full")};
    store.upsert_cells(cells);
    std::vector<SampleResult> many;
    for (int i = 0; i < 500; ++i) many.push_back(small_sample("a", i));
    store.commit("run", many);
  }
  const std::string whole = read_file(path);
  ASSERT_GT(whole.size(), 40000U);
  int refused = 0;
  for (const size_t size : {50UL, 1000UL, 5000UL, whole.size() / 2, whole.size() - 4096}) {
    put_bytes(path, whole.substr(0, size));
    const std::string message = testing::error_of([&] {
      const ResultsReader reader(path);
      (void)reader.content_digest();
    });
    EXPECT_EQ(message.rfind(path.string(), 0), 0U) << size << " bytes: " << message;
    refused += !message.empty();
  }
  EXPECT_EQ(refused, 5);
}

TEST(Schema, AnOlderFileIsCopiedBeforeItIsChanged) {
  const TemporaryFolder folder;
  const auto path = folder / "results.db";
  const auto copy = folder / "results.db.format2";
  {
    SQLite::Database old(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    migrate(old, "db", migrations().first(2));
    old.exec("INSERT INTO experiments VALUES ('old', 'Old', '{}', '{}')");
  }
  {
    const auto store = ResultsStore::open_or_create(path);
    EXPECT_EQ(store.read().experiments().at(0).experiment, "old");
  }
  const auto version = [](const std::filesystem::path& file) {
    return SQLite::Database(file.string()).execAndGet("PRAGMA user_version").getInt();
  };
  EXPECT_EQ(version(path), migrations().back().version);
  EXPECT_EQ(version(copy), 2);
  EXPECT_EQ(SQLite::Database(copy.string()).execAndGet("SELECT title FROM experiments").getString(), "Old");
  { const auto again = ResultsStore::open_or_create(path); }
  EXPECT_EQ(version(copy), 2);
  { const auto fresh = ResultsStore::open_or_create(folder / "fresh.db"); }
  EXPECT_FALSE(std::filesystem::exists(folder / "fresh.db.format0")) << "there was nothing to keep";
}

TEST(Schema, InputsOfOlderRunsStayAndBelongToNoModel) {
  const TemporaryFolder folder;
  const auto path = folder / "results.db";
  {
    SQLite::Database old(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    migrate(old, "db", migrations().first(3));
    old.exec("INSERT INTO run_inputs VALUES ('run', 'model', 'model.safetensors', '00ff', '{}')");
  }
  auto store = ResultsStore::open_or_create(path);
  store.add_input("run", {.kind = "model", .name = "model.safetensors", .sha256 = "11", .model = "tiny"});
  const std::vector<RunInput> inputs = store.read().inputs("run");
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].model, "");
  EXPECT_EQ(inputs[0].sha256, "00ff");
  EXPECT_EQ(inputs[1].model, "tiny");
  EXPECT_TRUE(std::filesystem::exists(folder / "results.db.format3"));
}

TEST(Schema, AbsentAndEmptyFilesAreExplained) {
  const TemporaryFolder folder;
  EXPECT_NE(testing::error_of([&] { (void)ResultsReader(folder / "none.db"); }).find("`kvarena run` makes one"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "none.db"));
  write_file(folder / "empty.db", "");
  EXPECT_NE(testing::error_of([&] { (void)ResultsReader(folder / "empty.db"); }).find("an empty database"),
            std::string::npos);
}

}  // namespace
}  // namespace kvarena::results
