#include "harness/results/results_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <string>

#include "harness/core/error.h"
#include "harness/results/left_out.h"
#include "harness/results/soundness.h"
#include "tests/harness/results/support.h"
#include "tests/support/error_of.h"

namespace kvarena::results {
namespace {

class ResultsStoreTest : public ::testing::Test {
 protected:
  void plan(std::vector<CellRecord> cells) { store_.upsert_cells(cells); }
  void evaluate(std::vector<SampleResult> results, std::vector<CellFailure> failures = {}) {
    store_.commit("run-1", results, failures);
  }
  CellRow row(const std::string& cell) { return store_.read().cell(cell).value(); }

  TemporaryFolder folder_;
  ResultsStore store_ = ResultsStore::open_or_create(folder_ / "r.db");
};

TEST_F(ResultsStoreTest, GivesBackEverythingOfASample) {
  plan({small_cell("a", "full")});
  evaluate({small_sample("a", 1)});
  const ResultsReader& read = store_.read();

  const SampleResult sample = read.samples("a").at(0);
  EXPECT_EQ(sample.sample_id, "s1");
  EXPECT_EQ(sample.sample_index, 1);
  EXPECT_EQ(sample.prompt_sha256, "prompt1");
  EXPECT_EQ(sample.context, "context0");
  EXPECT_EQ(read.contexts("a"), (std::map<std::string, std::string>{{"s1", "context0"}}));
  EXPECT_EQ(sample.prompt_tokens, 101);
  EXPECT_EQ(sample.truncated_tokens, 7);
  EXPECT_EQ(sample.output_tokens, 5);
  EXPECT_EQ(sample.prediction, "an answer");
  EXPECT_EQ(sample.references_json, R"(["an answer","another"])");
  EXPECT_EQ(sample.finish_reason, "stop");
  EXPECT_TRUE(sample.active);
  EXPECT_EQ(sample.activity_json, R"({"entries_dropped":12})");
  EXPECT_EQ(sample.wall_s, 0.25);

  const ValueRow value = read.values("a", "token_f1").at(0);
  EXPECT_EQ(value.value, 0.5);
  EXPECT_EQ(value.sample_id, "s1");
  EXPECT_TRUE(read.values("a", "time_to_first_token_ms").empty()) << "asked for another clock";
  EXPECT_EQ(read.values("a", "time_to_first_token_ms", Clock::measured).at(0).value, 12.5);
  EXPECT_EQ(read.sample_values("a", "s1").size(), 2U);

  EXPECT_EQ(read.series_names("a").at(0), std::pair(std::string("kl_nats"), Clock::none));
  const Series series = read.series("a", "kl_nats").at(0).series;
  EXPECT_EQ(series.unit, "nats");
  ASSERT_EQ(series.values.size(), 3U);
  EXPECT_EQ(series.values[0], 0.125F);
  EXPECT_TRUE(std::isnan(series.values[1]));

  const Event event = read.events("a").at(0).event;
  EXPECT_EQ(event.event, "verify");
  EXPECT_EQ(event.at_ms, 4.5);
  EXPECT_EQ(event.data_json, R"({"accepted":3})");
  EXPECT_EQ(row("a").peak_bytes.at(0), std::pair(std::string("device"), int64_t{1001}));
}

TEST_F(ResultsStoreTest, SamplesLeftOutAreCountedAndTold) {
  CellRecord cell = small_cell("a", "full");
  cell.left_out_samples = 2;
  cell.protocol_json = R"({"window": 2048})";
  plan({cell, small_cell("b", "other", 1)});
  EXPECT_EQ(row("a").cell.left_out_samples, 2);
  EXPECT_EQ(left_out_text(row("a").cell), "2 beyond the window of 2048");
  EXPECT_EQ(left_out_text(row("b").cell), "");
  const std::string before = store_.read().content_digest();
  cell.left_out_samples = 3;
  plan({cell});
  EXPECT_EQ(row("a").cell.left_out_samples, 3) << "a larger limit met another";
  EXPECT_NE(store_.read().content_digest(), before);
}

TEST_F(ResultsStoreTest, AllValuesOfACellComeAtOnceWithTheLeastRealStorage) {
  plan({small_cell("a", "full")});
  SampleResult late = small_sample("a", 1, 0.75);
  late.prompt_sha256 = "beef";
  late.values = {{.metric = "token_f1", .value = 0.75, .unit = "fraction", .storage = Storage::simulated}};
  SampleResult early = small_sample("a", 0, 0.25);
  early.values = {{.metric = "token_f1", .value = 0.25, .unit = "fraction"},
                  {.metric = "wait", .value = std::nan(""), .unit = "ms", .clock = Clock::modelled}};
  evaluate({late, early});
  const std::vector<ValueColumn> columns = store_.read().columns("a");
  ASSERT_EQ(columns.size(), 2U);
  EXPECT_EQ(columns[0].metric, "token_f1");
  EXPECT_EQ(columns[0].storage, Storage::simulated);
  ASSERT_EQ(columns[0].rows.size(), 2U);
  EXPECT_EQ(columns[0].rows[0].value, 0.25) << "by sample index";
  EXPECT_EQ(columns[0].rows[1].sample_id, "s1");
  EXPECT_EQ(columns[1].clock, Clock::modelled);
  EXPECT_TRUE(std::isnan(columns[1].rows[0].value));
  EXPECT_EQ(store_.read().prompts("a").at("s1"), "beef");
  EXPECT_TRUE(store_.read().columns("nobody").empty());
}

TEST_F(ResultsStoreTest, WhatAMetricMeansIsReplacedByName) {
  const std::vector<MetricDefinition> first = {{.metric = "b"}, {.metric = "a", .title = "old"}};
  const std::vector<MetricDefinition> second = {
      {.metric = "a", .title = "A", .unit = "ms", .better = Direction::lower, .table_scale = 10}};
  store_.define_metrics(first);
  store_.define_metrics(second);
  const std::vector<MetricDefinition> all = store_.read().metric_definitions();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].title, "A");
  EXPECT_EQ(all[0].unit, "ms");
  EXPECT_EQ(all[0].better, Direction::lower);
  EXPECT_EQ(all[0].table_scale, 10);
  EXPECT_EQ(all[1].better, Direction::neither);
}

TEST_F(ResultsStoreTest, RepeatingABatchChangesNothing) {
  plan({small_cell("a", "full")});
  evaluate({small_sample("a", 0), small_sample("a", 1)});
  const std::string digest = store_.read().content_digest();
  evaluate({small_sample("a", 1, 0.9), small_sample("a", 0)});  // the first result of a sample stays
  EXPECT_EQ(store_.read().content_digest(), digest);
  EXPECT_EQ(row("a").wall_s, 0.5);
  EXPECT_EQ(store_.read().done_samples("a"), (std::set<std::string>{"s0", "s1"}));
}

TEST_F(ResultsStoreTest, ABatchIsAllOrNothing) {
  plan({small_cell("a", "full")});
  SampleResult broken = small_sample("a", 1);
  broken.values.push_back(broken.values.front());  // the same metric twice
  EXPECT_THROW(evaluate({small_sample("a", 0), broken}), UserError);
  EXPECT_TRUE(store_.read().done_samples("a").empty());
  EXPECT_THROW(evaluate({small_sample("nobody", 0)}), InternalError);
  EXPECT_TRUE(store_.read().samples("nobody").empty());
  evaluate({small_sample("a", 0)});
  EXPECT_EQ(row("a").done_samples, 1);
}

TEST_F(ResultsStoreTest, ACellGoesFromPendingOverRunningToDone) {
  plan({small_cell("a", "full", 0, 1)});
  EXPECT_EQ(row("a").state, CellState::pending);
  evaluate({small_sample("a", 0)});
  EXPECT_EQ(row("a").state, CellState::running);
  const std::vector<MetricValue> values = {{.metric = "bleu", .value = 3}};
  store_.settle_cell("a", values);
  store_.settle_cell("a", values);
  EXPECT_EQ(row("a").state, CellState::done);
  EXPECT_EQ(store_.read().cell_values("a").size(), 1U);
}

TEST_F(ResultsStoreTest, AMethodThatNeverActedIsInactiveAndHasNoScore) {
  plan({small_cell("a", "full"), small_cell("b", "idle", 1, 2), small_cell("c", "seldom", 2, 2)});
  for (const std::string cell : {"a", "b", "c"}) {
    for (int i = 0; i < 2; ++i) {
      SampleResult sample = small_sample(cell, i);
      sample.active = cell == "a" || (cell == "c" && i == 1);
      evaluate({sample});
    }
    store_.settle_cell(cell, {});
  }
  EXPECT_EQ(row("b").state, CellState::inactive);
  EXPECT_EQ(row("b").reason, "the method acted on none of 2 samples");
  EXPECT_EQ(row("c").state, CellState::done);
  EXPECT_EQ(row("c").active_samples, 1);
  SQLite::Database database((folder_ / "r.db").string());
  EXPECT_EQ(database.execAndGet("SELECT count(*) FROM v_scores WHERE method = 'idle'").getInt(), 0);
  EXPECT_EQ(database.execAndGet("SELECT state FROM v_failures").getString(), "inactive");
}

TEST_F(ResultsStoreTest, AFailureCostsItsCellAndKeepsTheReason) {
  plan({small_cell("a", "full"), small_cell("b", "bad", 1)});
  evaluate({small_sample("a", 0), small_sample("b", 0)});
  evaluate({small_sample("a", 1)}, {{.cell_id = "b", .sample_id = "s1", .reason = "out of memory"}});
  EXPECT_EQ(row("a").state, CellState::running);
  EXPECT_EQ(row("b").state, CellState::failed);
  EXPECT_EQ(row("b").reason, "sample s1: out of memory");
  store_.settle_cell("b", {});
  EXPECT_EQ(row("b").state, CellState::failed);
  plan({small_cell("b", "bad", 1)});
  EXPECT_EQ(row("b").state, CellState::failed) << "planning again is no second chance";
  store_.retry_failed("b");
  EXPECT_EQ(row("b").state, CellState::running);
  EXPECT_EQ(row("b").reason, "");
  EXPECT_EQ(row("b").done_samples, 1);
}

TEST_F(ResultsStoreTest, MissingWeightsAreNoFailureAndAreForgottenWhenTheyAreThere) {
  plan({small_cell("a", "full"), small_cell("b", "fitted", 1)});
  store_.mark_missing("b", "weights of fitted");
  EXPECT_EQ(row("b").state, CellState::missing);
  EXPECT_EQ(row("b").reason, "weights of fitted");
  for (const std::string& fault : find_faults(folder_ / "r.db")) {
    EXPECT_EQ(fault.find("no known kind or state"), std::string::npos) << fault;
  }
  EXPECT_EQ(SQLite::Database((folder_ / "r.db").string()).execAndGet("SELECT state FROM v_failures").getString(),
            "missing");
  plan({small_cell("a", "full"), small_cell("b", "fitted", 1)});
  EXPECT_EQ(row("b").state, CellState::pending);
  EXPECT_EQ(row("b").reason, "");
  evaluate({small_sample("b", 0)});
  store_.mark_missing("b", "weights of fitted");
  EXPECT_EQ(row("b").state, CellState::running) << "what was evaluated stays";
}

TEST_F(ResultsStoreTest, MarksAreOfOneJudge) {
  plan({small_cell("a", "full", 0, 2)});
  std::vector<SampleResult> samples = {small_sample("a", 0), small_sample("a", 1)};
  for (SampleResult& sample : samples) {
    sample.events = {
        {.event = JudgeRequest::kEvent, .data_json = R"({"metric": "quality", "request": "Write.", "reference": ""})"}};
  }
  evaluate(samples);
  const std::array judge = {JudgeRecord{.metric = "quality", .model = "A", .question_sha256 = "q1"},
                            JudgeRecord{.metric = "quality_part", .model = "A", .question_sha256 = "q1"}};
  std::vector<JudgeRequest> waiting = store_.read().unjudged("exp");
  ASSERT_EQ(waiting.size(), 2U);
  EXPECT_EQ(waiting[0].sample_id, "s0");
  EXPECT_EQ(waiting[0].request, "Write.");
  store_.set_judges("exp", judge, false);
  store_.add_marks(waiting[0], std::array{MetricValue{.metric = "quality", .value = 0.5, .unit = "fraction"},
                                          MetricValue{.metric = "quality_part", .value = 0.25, .unit = "fraction"}});
  store_.add_marks(waiting[1], std::array{MetricValue{.metric = "quality", .value = std::nan(""), .unit = "fraction"}});
  EXPECT_TRUE(store_.read().unjudged("exp").empty())
      << "an answer whose marks could not be read is not asked about again";
  store_.set_judges("exp", judge, false);
  EXPECT_EQ(store_.read().values("a", "quality").size(), 2U);

  auto other = judge;
  other[0].model = "B";
  const std::string refused = testing::error_of([&] { store_.set_judges("exp", other, false); });
  EXPECT_NE(refused.find("quality of exp by the judge A, question q1"), std::string::npos) << refused;
  EXPECT_NE(refused.find("--replace"), std::string::npos) << refused;
  EXPECT_TRUE(store_.read().unjudged("exp").empty());
  other[1].model = "B";
  store_.set_judges("exp", other, true);
  EXPECT_EQ(store_.read().unjudged("exp").size(), 2U);
  EXPECT_TRUE(store_.read().values("a", "quality_part").empty());
  EXPECT_EQ(store_.read().judges("exp").at(1).model, "B");
}

TEST_F(ResultsStoreTest, OtherSettingsUnderTheSameLabelsSupersede) {
  plan({small_cell("old", "snap")});
  evaluate({small_sample("old", 0)});
  plan({small_cell("new", "snap")});
  ASSERT_EQ(store_.read().cells("exp").size(), 1U);
  EXPECT_EQ(store_.read().cells("exp").front().cell.cell_id, "new");
  EXPECT_EQ(store_.read().cells("exp", true).size(), 2U);
  plan({small_cell("old", "snap")});  // back to the old settings: what was done is there
  EXPECT_EQ(store_.read().cells("exp").front().cell.cell_id, "old");
  EXPECT_EQ(store_.read().cells("exp").front().done_samples, 1);
}

TEST_F(ResultsStoreTest, AHigherLimitReopensADoneCell) {
  plan({small_cell("a", "full", 0, 1)});
  evaluate({small_sample("a", 0)});
  store_.settle_cell("a", {});
  plan({small_cell("a", "full", 0, 1)});
  EXPECT_EQ(row("a").state, CellState::done);
  plan({small_cell("a", "full", 0, 5)});
  EXPECT_EQ(row("a").state, CellState::running);
  EXPECT_EQ(row("a").cell.planned_samples, 5);
}

TEST_F(ResultsStoreTest, PeaksAreTheLargestOfAllSamples) {
  plan({small_cell("a", "full")});
  evaluate({small_sample("a", 2), small_sample("a", 0)});
  EXPECT_EQ(row("a").peak_bytes.at(0).second, 1002);
}

TEST_F(ResultsStoreTest, NotDefinedAndInfiniteValuesComeBackAsSuch) {
  plan({small_cell("a", "full")});
  SampleResult sample = small_sample("a", 0);
  sample.values = {{.metric = "m", .value = std::nan("")}, {.metric = "n", .value = INFINITY}};
  evaluate({sample, small_sample("a", 1)});
  EXPECT_TRUE(std::isnan(store_.read().values("a", "m").at(0).value));
  EXPECT_EQ(store_.read().values("a", "n").at(0).value, INFINITY);
}

TEST_F(ResultsStoreTest, BytesThatAreNoTextAreReplacedSoThatEveryClientCanRead) {
  plan({small_cell("a", "full")});
  SampleResult sample = small_sample("a", 0);
  sample.prediction = "half a letter \xc3 and \xff, then ü and ' and \"";
  evaluate({sample});
  EXPECT_EQ(store_.read().samples("a").at(0).prediction,
            "half a letter \xEF\xBF\xBD and \xEF\xBF\xBD, then ü and ' and \"");
}

TEST_F(ResultsStoreTest, RunsCarryTheirProvenanceAndAKilledOneIsMarked) {
  ExperimentRecord experiment{.experiment = "exp", .title = "A title", .config_json = R"({"b":1, "a":2})"};
  experiment.published = {{.model = "big",
                           .workload = "qa",
                           .method = "snap",
                           .metric = "f1",
                           .against = {"full", "snap, half"},
                           .value = 19.5,
                           .unit = "percent",
                           .statistic = Statistic::equal_quality,
                           .source = "paper, table 1",
                           .note = ""}};
  RunRecord run;
  run.experiment = "exp";
  run.git_revision = "abc-dirty";
  run.config_text = "{}";
  run.seed = 7;
  run.cpu_threads = 2;
  const std::string killed = store_.begin_run(experiment, run);
  const std::string ended = store_.begin_run(experiment, run);
  store_.add_input(ended, {.kind = "model", .name = "tiny", .sha256 = "00ff", .detail_json = R"({"dtype":"bf16"})"});
  store_.finish_run(ended, RunState::finished);

  for (const RunRecord& row : store_.read().runs("exp")) {
    EXPECT_EQ(row.git_revision, "abc-dirty");
    EXPECT_EQ(row.config_sha256, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    EXPECT_EQ(row.seed, 7);
    EXPECT_EQ(row.started_at.size(), 20U);
    EXPECT_EQ(row.state, row.run_id == killed ? RunState::interrupted : RunState::finished);
    EXPECT_EQ(row.finished_at.empty(), row.run_id == killed);
  }
  EXPECT_EQ(store_.read().runs("exp").size(), 2U);
  EXPECT_EQ(store_.read().inputs(ended).at(0).sha256, "00ff");
  // Files of two models are named alike; neither takes the other's place.
  for (const auto& [model, hash] : {std::pair("a", "01"), std::pair("b", "02")})
    store_.add_input(ended, {.kind = "model", .name = "model.safetensors", .sha256 = hash, .model = model});
  const std::vector<RunInput> inputs = store_.read().inputs(ended);
  ASSERT_EQ(inputs.size(), 3U);
  EXPECT_EQ(inputs[1].model + inputs[1].sha256, "a01");
  EXPECT_EQ(inputs[2].model + inputs[2].sha256, "b02");
  const auto back = store_.read().experiments();
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].config_json, R"({"a":2,"b":1})");
  EXPECT_EQ(back[0].published.at(0).value, 19.5);
  EXPECT_EQ(back[0].published.at(0).statistic, Statistic::equal_quality);
  EXPECT_EQ(back[0].published.at(0).against, (std::vector<std::string>{"full", "snap, half"}));
}

TEST_F(ResultsStoreTest, MetricsListsWhatAnyCellInForceHas) {
  plan({small_cell("a", "full"), small_cell("b", "snap", 1)});
  evaluate({small_sample("a", 0), small_sample("b", 0)});
  store_.settle_cell("b", std::array{MetricValue{.metric = "bleu", .value = 1, .unit = "percent"}});
  const auto metrics = store_.read().metrics("exp");
  ASSERT_EQ(metrics.size(), 3U);
  EXPECT_EQ(metrics[0].metric, "bleu");
  EXPECT_FALSE(metrics[0].per_sample);
  EXPECT_EQ(metrics[1].metric, "time_to_first_token_ms");
  EXPECT_EQ(metrics[1].clock, Clock::measured);
  EXPECT_EQ(metrics[2].metric, "token_f1");
}

}  // namespace
}  // namespace kvarena::results
