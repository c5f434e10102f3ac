#include "harness/results/soundness.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "tests/harness/results/support.h"
#include "tests/support/error_of.h"

namespace kvarena::results {
namespace {

class SoundnessTest : public ::testing::Test {
 protected:
  SoundnessTest() {
    auto store = ResultsStore::open_or_create(path_);
    const std::string run = store.begin_run({.experiment = "exp", .title = "title"}, {.experiment = "exp"});
    store.upsert_cells(std::array{small_cell("a", "full")});
    store.commit(run, std::array{small_sample("a", 0), small_sample("a", 1), small_sample("a", 2)});
    store.settle_cell("a", std::array{MetricValue{.metric = "bleu", .value = 3, .unit = "percent"}});
    store.finish_run(run, RunState::finished);
  }

  /// The faults after somebody changed the file with another program.
  std::vector<std::string> faults_after(const std::string& sql) {
    {
      SQLite::Database database(path_.string(), SQLite::OPEN_READWRITE);
      database.exec(sql);
    }
    return find_faults(path_);
  }

  void read_everything() const {
    const ResultsReader reader(path_);
    (void)reader.experiments();
    (void)reader.runs("exp");
    for (const CellRow& row : reader.cells("exp", true)) {
      const std::string& id = row.cell.cell_id;
      (void)reader.samples(id);
      (void)reader.columns(id);
      (void)reader.cell_values(id);
      (void)reader.events(id);
      for (const auto& [name, clock] : reader.series_names(id)) (void)reader.series(id, name, clock);
    }
  }

  TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "r.db";
};

TEST_F(SoundnessTest, AFinishedRunIsSound) { EXPECT_EQ(find_faults(path_), std::vector<std::string>{}); }

TEST_F(SoundnessTest, AKilledRunIsSoundToo) {
  {
    auto store = ResultsStore::open_or_create(path_);
    store.upsert_cells(std::array{small_cell("b", "snap", 1)});
    store.commit("run", std::array{small_sample("b", 0)});
  }
  EXPECT_EQ(find_faults(path_), std::vector<std::string>{});
}

TEST_F(SoundnessTest, EveryRuleFindsItsBreach) {
  const std::vector<std::pair<std::string, std::string>> breaches = {
      {"DELETE FROM experiments", "a cell of no experiment: a"},
      {"INSERT INTO sample_values VALUES ('a', 'gone', 'bleu', 'none', 1, 'percent', 'real')",
       "a value of no sample: a gone bleu"},
      {"INSERT INTO series VALUES ('a', 'gone', 'kl', 'none', 'nats', 'real', 0, '[]')",
       "a series of no sample: a gone kl"},
      {"INSERT INTO events VALUES ('a', 'gone', 0, 'verify', 1, '{}')", "an event of no sample: a gone 0"},
      {"INSERT INTO cell_peaks VALUES ('gone', 'disk', 1)", "peak bytes of no cell: gone disk"},
      {"INSERT INTO cell_values VALUES ('gone', 'bleu', 'none', 1, 'percent', 'real')",
       "a value of no cell: gone bleu"},
      {"UPDATE cells SET planned_samples = 4", "a cell that is called done and lacks samples: a, 3 of 4"},
      {"UPDATE series SET values_json = '[1]' WHERE sample_id = 's1'",
       "a series that is not as long as it says: a s1 kl_nats"},
      {"UPDATE samples SET references_json = '[' WHERE sample_id = 's2'",
       "a sample whose columns of JSON are none: a s2"},
      {"UPDATE events SET data_json = '' WHERE sample_id = 's0'", "an event whose data is no JSON: a s0 0"},
      {"UPDATE experiments SET table_json = '{'", "an experiment whose columns of JSON are none: exp"},
      {"UPDATE cells SET protocol_json = 'x'", "a cell whose columns of JSON are none: a"},
      {"UPDATE cells SET kind = 'qualitx'", "a cell of no known kind or state: a"},
      {"UPDATE cells SET state = 'dome'", "a cell of no known kind or state: a"},
      {"UPDATE cell_values SET clock = 'sundial'", "a number of no known clock or storage: a bleu"},
      {"UPDATE series SET storage = 'unreal' WHERE sample_id = 's2'",
       "a number of no known clock or storage: a kl_nats"},
  };
  const std::string sound = read_file(path_);
  for (const auto& [sql, fault] : breaches) {
    put_bytes(path_, sound);
    EXPECT_EQ(faults_after(sql), std::vector{fault}) << sql;
    EXPECT_NE(testing::error_of([&] { refuse_faults(path_); }).find(fault), std::string::npos);
    auto store = ResultsStore::open_or_create(folder_ / "whole.db");
    EXPECT_NE(testing::error_of([&] { (void)store.merge(path_); }).find(fault), std::string::npos)
        << "merged all the same";
    EXPECT_TRUE(store.read().experiments().empty());
    EXPECT_EQ(testing::error_of([&] { read_everything(); }).find("internal error"), std::string::npos);
  }
}

TEST_F(SoundnessTest, WhatAReaderMeetsInADamagedFileIsSaidWithFileColumnAndRemedy) {
  const std::vector<std::pair<std::string, std::string>> damages = {
      {"UPDATE series SET values_json = '[1,x]'", "numbers: found \"[1,x]\", expected a list of numbers"},
      {"UPDATE cells SET state = 'dome'", "state: found \"dome\", expected a word of the schema"},
      {"UPDATE cells SET protocol_json = '{'", "protocol_json: found \"{\", expected JSON"},
      {"DELETE FROM samples WHERE sample_id = 's1'", "a value of no sample: a s1"},
  };
  const std::string sound = read_file(path_);
  for (const auto& [sql, words] : damages) {
    put_bytes(path_, sound);
    (void)faults_after(sql);
    const std::string message = testing::error_of([&] { read_everything(); });
    EXPECT_EQ(message.rfind(path_.string() + ": found a damaged database: ", 0), 0U) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find("kvarena doctor --database"), std::string::npos) << message;
  }
}

TEST_F(SoundnessTest, ManyFaultsOfAKindAreAFewSentences) {
  const std::vector<std::string> faults = faults_after(
      "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999) "
      "INSERT INTO cell_peaks SELECT 'gone' || i, 'disk', 1 FROM n");
  EXPECT_EQ(faults.size(), 5U);
}

TEST_F(SoundnessTest, DamagedPagesAreFound) {
  {
    auto store = ResultsStore::open_or_create(path_);
    std::vector<SampleResult> many;
    for (int i = 3; i < 400; ++i) many.push_back(small_sample("a", i));
    store.commit("run", many);
  }
  const std::string whole = read_file(path_);
  ASSERT_GT(whole.size(), size_t{20} * 4096);
  int found = 0;
  for (size_t page = 2; page + 1 < whole.size() / 4096; page += 3) {
    std::string damaged = whole;
    for (size_t i = 0; i < 64; ++i) damaged[page * 4096 + i] = static_cast<char>(0x5a);
    put_bytes(path_, damaged);
    try {
      found += find_faults(path_).empty() ? 0 : 1;
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).rfind(path_.string(), 0), 0U) << error.what();
      ++found;
    }
  }
  EXPECT_EQ(found, static_cast<int>((whole.size() / 4096 - 4) / 3 + 1));
}

}  // namespace
}  // namespace kvarena::results
