// Shards run side by side and merged hold what one run holds.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

/// Without values of whole cells, which a shard that has a part of a cell cannot compute.
class SampleEvaluator final : public FakeEvaluator {
 public:
  std::vector<results::MetricValue> cell_values(const PlannedCell&, const results::ResultsReader&) override {
    return {};
  }
};

class ShardTest : public ::testing::Test {
 protected:
  RunSummary run(const std::filesystem::path& database, Shard shard = {}) {
    auto results = results::ResultsStore::open_or_create(database);
    const Plan plan = make_plan(parse(kSmallConfig), catalog_, shard);
    Progress progress({.style = ProgressOptions::Style::quiet, .stream = nowhere(), .now = {}});
    return run_plan(plan, evaluator_, results, progress, stop_, {});
  }

  static std::string digest(const std::filesystem::path& database) {
    return results::ResultsReader(database).content_digest();
  }

  TemporaryFolder folder_;
  FakeCatalog catalog_;
  SampleEvaluator evaluator_;
  std::atomic<bool> stop_{false};
};

TEST_F(ShardTest, MergedInAnyOrderTheyHoldWhatOneRunHolds) {
  evaluator_.failure = [](const EvalTask& task, const PlannedCell& cell) {
    return cell.record.method_name == "kivi" && task.sample_id == "needle-4" ? "it always fails here" : "";
  };
  evaluator_.inactive = [](const PlannedCell& cell) { return cell.record.method == "snapkv keep=0.25"; };
  for (const int64_t count : {1, 3, 11}) {
    std::vector<std::filesystem::path> parts;
    int64_t evaluated = 0;
    for (int64_t i = 0; i < count; ++i) {
      parts.push_back(folder_ / fmt::format("part-{}-{}.db", count, i));
      evaluated += run(parts.back(), {.index = i, .count = count}).evaluated;
      EXPECT_EQ(run(parts.back(), {.index = i, .count = count}).evaluated, 0) << "a shard goes on where it was";
    }
    EXPECT_GE(evaluated, 38) << "everything but what the failed cell lacks";
    std::set<std::string> digests;
    for (const bool backwards : {false, true}) {
      if (backwards) std::ranges::reverse(parts);
      const auto path = folder_ / fmt::format("merged-{}-{}.db", count, backwards);
      auto merged = results::ResultsStore::open_or_create(path);
      for (const auto& part : parts) (void)merged.merge(part);
      digests.insert(merged.read().content_digest());
      for (const auto& part : parts) EXPECT_EQ(merged.merge(part).samples, 0);
      digests.insert(merged.read().content_digest());
      std::map<results::CellState, int> states;
      for (const auto& row : merged.read().cells("small")) ++states[row.state];
      EXPECT_EQ(states, (std::map<results::CellState, int>{{results::CellState::done, 5},
                                                           {results::CellState::failed, 1},
                                                           {results::CellState::inactive, 2}}));
    }
    EXPECT_EQ(digests.size(), 1U) << count << " shards";
  }
}

TEST_F(ShardTest, WithoutFailuresTheContentIsThatOfOneRun) {
  (void)run(folder_ / "whole.db");
  auto merged = results::ResultsStore::open_or_create(folder_ / "merged.db");
  int64_t evaluated = 0;
  for (int64_t i = 0; i < 4; ++i) {
    const auto part = folder_ / fmt::format("part{}.db", i);
    evaluated += run(part, {.index = i, .count = 4}).evaluated;
    (void)merged.merge(part);
  }
  EXPECT_EQ(evaluated, 40) << "no sample is judged twice";
  EXPECT_EQ(merged.read().content_digest(), digest(folder_ / "whole.db"));
}

TEST_F(ShardTest, EverySampleIsAskedOnceAndTimesByWholeGroups) {
  const Overrides asked{
      .set = {R"(serving={"load": [0.5, 1.2], "requests": 2})", R"(timing={"samples": 3})", "engine.noise_floor=2"}};
  constexpr int64_t kCount = 3;
  std::vector<Plan> plans;
  for (int64_t i = 0; i < kCount; ++i) {
    plans.push_back(make_plan(parse(kSmallConfig, asked), catalog_, {.index = i, .count = kCount}));
  }
  const Plan whole = make_plan(parse(kSmallConfig, asked), catalog_);
  ASSERT_EQ(whole.groups.size(), 8U);
  int64_t evaluations = 0;
  for (const Plan& plan : plans) evaluations += plan.evaluations();
  EXPECT_EQ(evaluations, whole.evaluations());
  for (size_t g = 0; g < whole.groups.size(); ++g) {
    const CellGroup& group = whole.groups[g];
    for (size_t i = 0; i < group.sample_ids.size(); ++i) {
      EXPECT_EQ(std::ranges::count_if(plans, [&](const Plan& plan) { return plan.groups[g].asked[i]; }), 1);
    }
    for (const Plan& plan : plans) {
      EXPECT_EQ(plan.groups[g].cells[0].record.cell_id, group.cells[0].record.cell_id);
      if (group.kind != results::CellKind::timing && group.kind != results::CellKind::serving) continue;
      EXPECT_EQ(plan.groups[g].asked_samples() % group.asked_samples(), 0) << "times come from one machine";
    }
  }
}

TEST_F(ShardTest, PartsAreWrittenAsIOfN) {
  EXPECT_EQ(parse_shard("2/8", "--shard").index, 2);
  EXPECT_EQ(parse_shard("0/1", "--shard").count, 1);
  for (const char* bad : {"", "1", "8/8", "-1/3", "1/0", "1/2/3", "a/b", "1/2 ", " 1/2", "99999999999999999999/3"}) {
    EXPECT_THROW((void)parse_shard(bad, "--shard"), UserError) << bad;
  }
}

}  // namespace
}  // namespace kvarena::experiment
