#include "harness/experiment/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/experiment/expected_use.h"
#include "tests/harness/experiment/support.h"
#include "tests/support/error_of.h"

namespace kvarena::experiment {
namespace {

std::vector<std::string> ids_of(const Plan& plan) {
  std::vector<std::string> ids;
  for (const CellGroup& group : plan.groups) {
    for (const PlannedCell& cell : group.cells) ids.push_back(cell.record.cell_id);
  }
  return ids;
}

Plan plan_of(const std::string& text, const Overrides& overrides = {}, const std::string& card = "auto") {
  FakeCatalog catalog;
  catalog.card = card;
  return make_plan(parse(text, overrides), catalog);
}

TEST(Plan, CellsComeByModelWorkloadAndMethod) {
  const Plan plan = plan_of(kSmallConfig);
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.groups[0].workload->name, "qasper");
  EXPECT_EQ(plan.groups[0].sample_ids.size(), 4U);
  EXPECT_EQ(plan.groups[1].sample_ids.size(), 6U);
  EXPECT_EQ(plan.evaluations(), 4 * 4 + 6 * 4);
  int64_t position = 0;
  for (const CellGroup& group : plan.groups) {
    ASSERT_EQ(group.cells.size(), 4U);
    for (const PlannedCell& cell : group.cells) {
      EXPECT_EQ(cell.record.position, position++);
      EXPECT_EQ(cell.record.planned_samples, static_cast<int64_t>(group.sample_ids.size()));
      EXPECT_EQ(cell.record.protocol_json, R"({"dtype":"bf16","metrics":"token_f1 v1","template":"auto"})");
      EXPECT_EQ(cell.record.protocol_sha256, sha256(cell.record.protocol_json));
    }
  }
}

TEST(Plan, TheBaselineAnswersSomeSamplesTwice) {
  const Plan plan = plan_of(kSmallConfig, {.set = {"engine.noise_floor=5"}});
  ASSERT_EQ(plan.groups.size(), 4U);
  EXPECT_EQ(plan.groups[1].kind, results::CellKind::noise_floor);
  ASSERT_EQ(plan.groups[1].cells.size(), 1U);
  EXPECT_TRUE(plan.groups[1].cells[0].record.baseline);
  EXPECT_EQ(plan.groups[1].sample_ids.size(), 4U) << "no more than the workload has";
  EXPECT_EQ(plan.groups[3].sample_ids.size(), 5U);
}

TEST(Plan, AMethodIsTimedAtItsOwnBatch) {
  const std::string text = R"({"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper", "needle"],
    "methods": [{"name": "full", "batch": {"qasper": 16, "needle": {"smollm2-135m": 6, "qwen3-8b": 8}}},
                {"name": "kivi", "bits": 2, "batch": 4}, {"name": "snapkv"}],
    "engine": {"noise_floor": 0}, "timing": {"batch": 32}})";
  const auto batches = [&](const Overrides& overrides = {}) {
    std::vector<int64_t> all;
    for (const CellGroup& group : plan_of(text, overrides).groups) {
      for (const PlannedCell& cell : group.cells) {
        if (group.kind == results::CellKind::timing)
          all.push_back(nlohmann::json::parse(cell.record.engine_json).at("batch").get<int64_t>());
      }
    }
    return all;
  };
  EXPECT_EQ(batches(), (std::vector<int64_t>{16, 4, 32, 6, 4, 32}));
  EXPECT_EQ(batches({.set = {"workloads.needle.length=64", "timing.batch=2"}}),
            (std::vector<int64_t>{16, 4, 2, 2, 4, 2}))
      << "requests of another length have no batch that was printed for them";
  EXPECT_EQ(batches({.set = {"methods[0].batch=3"}}), (std::vector<int64_t>{3, 4, 32, 3, 4, 32}));
}

TEST(Plan, AMethodRunsOnTheModelsThatItNames) {
  const std::string text = R"({"name": "m", "models": ["smollm2-135m", "qwen3-8b"], "workloads": ["qasper"],
    "methods": ["full", {"name": "snapkv", "models": ["qwen3-8b", "smollm2"]}, {"name": "kivi", "bits": 2}]})";
  std::vector<std::string> run;
  for (const CellGroup& group : plan_of(text, {.set = {"engine.noise_floor=0"}}).groups) {
    for (const PlannedCell& cell : group.cells)
      run.push_back(fmt::format("{} {}", cell.record.model, cell.record.method_name));
  }
  EXPECT_EQ(run, (std::vector<std::string>{"smollm2-135m full", "smollm2-135m kivi", "qwen3-8b full", "qwen3-8b snapkv",
                                           "qwen3-8b kivi"}));
  ASSERT_EQ(parse(text).warnings.size(), 1U);
  EXPECT_NE(parse(text).warnings[0].find("models of snapkv: found model \"smollm2\""), std::string::npos)
      << parse(text).warnings[0];
}

TEST(Plan, IdsAreDistinctStableAndFollowWhatIsMeasured) {
  const std::vector<std::string> ids = ids_of(plan_of(kSmallConfig));
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  const auto same = [&](const Overrides& overrides) { return ids_of(plan_of(kSmallConfig, overrides)) == ids; };
  EXPECT_TRUE(same({}));
  EXPECT_TRUE(same({.limit = 2})) << "more samples go into the same cells";
  EXPECT_TRUE(same({.set = {"engine.threads=1"}})) << "threads change times, not quality";
  const auto on = [](const char* devices) {
    return Overrides{.set = {"models[0].device=cuda", fmt::format("models[0].devices={}", devices)}};
  };
  EXPECT_FALSE(same(on("[]")));
  EXPECT_EQ(ids_of(plan_of(kSmallConfig, on("[0, 1]"))), ids_of(plan_of(kSmallConfig, on("[]"))))
      << "how many devices share the layers changes no result";
  EXPECT_TRUE(same({.set = {"title=x", "output.report=y"}}));
  const std::vector<std::string> twice = ids_of(plan_of(kSmallConfig, {.set = {"engine.noise_floor=2"}}));
  for (const std::string& id : ids)
    EXPECT_EQ(std::ranges::count(twice, id), 1) << "how many are repeated is no identity";
  EXPECT_FALSE(same({.set = {"engine.seed=1"}}));
  EXPECT_FALSE(same({.set = {"engine.max_new_tokens=9"}}));
  EXPECT_FALSE(same({.set = {"models[0].dtype=f32"}}));
  EXPECT_TRUE(same({.set = {"models[0].device=cpu"}}));
  EXPECT_FALSE(same({.set = {"models[0].device=cuda"}})) << "a device rounds in its own way";
  EXPECT_FALSE(same({.set = {"name=other"}}));
  EXPECT_NE(ids_of(plan_of(kSmallConfig, {}, "none")), ids) << "another protocol is another cell";
  // Setting one method leaves the others alone.
  const std::vector<std::string> changed = ids_of(plan_of(kSmallConfig, {.set = {"methods.kivi.bits=4"}}));
  EXPECT_EQ(changed[0], ids[0]);
  EXPECT_NE(changed[3], ids[3]);
}

TEST(Plan, TimingAddsCellsOfItsOwnOverTheFirstSamples) {
  const Overrides timing{.set = {R"(timing={"samples": 2, "repeats": 3})"}};
  const Plan plan = plan_of(kSmallConfig, timing);
  ASSERT_EQ(plan.groups.size(), 4U);
  EXPECT_EQ(plan.groups[1].kind, results::CellKind::timing);
  EXPECT_EQ(plan.groups[1].sample_ids, (std::vector<std::string>{"qasper-0", "qasper-1"}));
  const std::vector<std::string> without = ids_of(plan_of(kSmallConfig));
  const std::vector<std::string> with = ids_of(plan);
  EXPECT_EQ(with[0], without[0]) << "quality cells do not depend on timing";
  Overrides threads = timing;
  threads.set.push_back("engine.threads=1");
  EXPECT_NE(ids_of(plan_of(kSmallConfig, threads))[4], with[4]) << "timing cells depend on threads";
  const auto on_devices = [&](const char* devices) {
    Overrides split = timing;
    split.set.push_back("models[0].device=cuda");
    split.set.push_back(fmt::format("models[0].devices={}", devices));
    return ids_of(plan_of(kSmallConfig, split));
  };
  EXPECT_EQ(on_devices("[0, 1]")[0], on_devices("[]")[0]);
  EXPECT_NE(on_devices("[0, 1]")[4], on_devices("[]")[4]) << "timing cells depend on the devices that are named";
}

TEST(Plan, DryRunSaysWhatIsToDoAndWhatIsDone) {
  const Plan plan = plan_of(kSmallConfig);
  const std::string fresh = describe_plan(plan, nullptr);
  EXPECT_NE(fresh.find("small: 8 cells, 40 evaluations, 0 done already\n"), std::string::npos) << fresh;
  EXPECT_NE(fresh.find("\nsmollm2-135m, qasper, quality: 4 samples\n  full\n"), std::string::npos) << fresh;

  TemporaryFolder folder;
  Rig rig(folder / "r.db");
  rig.evaluator.failure = [](const EvalTask&, const PlannedCell& cell) {
    return cell.record.method_name == "kivi" ? "it threw" : "";
  };
  (void)rig.run();
  const results::ResultsReader reader(rig.path);
  const std::string done = describe_plan(plan, &reader);
  EXPECT_NE(done.find("30 done already"), std::string::npos) << done;
  EXPECT_NE(done.find("4 of 4 done, done\n"), std::string::npos) << done;
  EXPECT_NE(done.find("0 of 4 done, failed: sample qasper-0: it threw\n"), std::string::npos) << done;
}

TEST(Plan, DryRunSaysWhatTheRestMayTake) {
  FakeCatalog catalog;
  catalog.prompt_tokens = 800;
  catalog.answer_tokens = 19;
  catalog.size = {.weight_bytes = 1e9, .entry_bytes = 1e6};
  const Plan plan = make_plan(parse(kSmallConfig), catalog);
  // Four cells share 100 steps of prefill and add 15 each; of 20 passes each reads 810 entries of its own, 0.81 of a
  // step.
  const double cost = 100.0 / 4 + 15 + 20 * (1.0 / 4 + 0.81);
  ASSERT_NEAR(plan.groups[0].cost, cost, 1e-9);
  EXPECT_NEAR(plan.groups[0].bytes, 1e9 + 5 * 819 * 1e6, 1);
  // Ten samples under four cells, a step of 1/6 s at 0.6 of the rate: 408 s.
  EXPECT_EQ(expected_use(plan, nullptr, 1e10), "about 6 min 48 s and 4.7 GiB on this machine");
  EXPECT_NE(describe_plan(plan, nullptr, "about 1 s").find("0 done already; about 1 s\n"), std::string::npos);
  const Plan on_device = make_plan(parse(kSmallConfig, {.set = {"models[0].device=cuda"}}), catalog);
  EXPECT_EQ(expected_use(on_device, nullptr, 1e10), "") << "its rates are not known";
}

TEST(Plan, SaysWhichWorkloadsAreOfProjectMadeSamples) {
  EXPECT_TRUE(plan_of(kSmallConfig).invented().empty());
  FakeCatalog catalog;
  catalog.origin = [](const std::string& workload) {
    return workload == "qasper" ? R"({"origin": "project-made sample", "instead_of": "LongBench qasper"})"
                                : R"({"origin": "generated"})";
  };
  const Plan plan = make_plan(parse(kSmallConfig), catalog);
  ASSERT_EQ(plan.invented().size(), 1U);
  const std::string text = describe_plan(plan, nullptr);
  EXPECT_NE(text.find("qasper, quality: 4 samples; project-made sample, not LongBench qasper\n"), std::string::npos);
  EXPECT_NE(text.find("needle, quality: 6 samples\n"), std::string::npos) << text;
}

TEST(Plan, SamplesBeyondTheWindowAreCountedInEveryCell) {
  FakeCatalog catalog;
  catalog.too_long = {"qasper-0", "qasper-2"};
  const Plan plan = make_plan(parse(kSmallConfig, {.set = {"timing={}", R"(serving={"load": [1]})"}}), catalog);
  const std::vector<std::string> fitting = {"qasper-1", "qasper-3"};
  EXPECT_EQ(plan.groups[0].sample_ids, fitting);
  EXPECT_EQ(plan.groups[1].sample_ids, std::vector<std::string>{"qasper-1"}) << "timed is the first that fits";
  EXPECT_EQ(plan.groups[2].requests, 2);
  for (size_t group = 0; group < 3; ++group) {
    for (const PlannedCell& cell : plan.groups[group].cells) EXPECT_EQ(cell.record.left_out_samples, 2);
  }
  EXPECT_EQ(plan.groups[3].left_out, 0);
  const std::string text = describe_plan(plan, nullptr);
  EXPECT_NE(text.find("qasper, quality: 2 samples; 2 beyond the window\n"), std::string::npos) << text;
  const Plan all = plan_of(kSmallConfig);
  EXPECT_EQ(plan.groups[0].cells[0].record.cell_id, all.groups[0].cells[0].record.cell_id) << "as with a limit";
}

TEST(Plan, RequestsOfALengthAreTimedAndNothingElse) {
  const auto planned = [](const std::string& tokens) {
    return plan_of(kSmallConfig, {.set = {"timing={}", R"(serving={"load": [1]})", "engine.noise_floor=1",
                                          "workloads[1].request_tokens=" + tokens}});
  };
  const Plan plan = planned("[2048, 16]");
  ASSERT_EQ(plan.groups.size(), 5U);
  EXPECT_EQ(plan.groups[4].kind, results::CellKind::timing);
  EXPECT_EQ(plan.groups[4].workload->name, "needle");
  EXPECT_NE(planned("[2048, 17]").groups[4].cells[0].record.cell_id, plan.groups[4].cells[0].record.cell_id);
  EXPECT_EQ(planned("[2048, 17]").groups[0].cells[0].record.cell_id, plan.groups[0].cells[0].record.cell_id);
}

TEST(Plan, AWorkloadWithoutSamplesIsAnError) {
  class Empty final : public Catalog {
   public:
    WorkloadSamples samples(const ModelEntry&, const ComponentEntry&, results::CellKind, int64_t) override {
      return {};
    }
    ModelSize model_size(const ModelEntry&) override { return {}; }
    results::RunInput data_input(const ModelEntry&, const ComponentEntry&) override { return {}; }
    std::string protocol_card(const ModelEntry&, const ComponentEntry&, const ComponentEntry&,
                              results::CellKind) override {
      return "{}";
    }
  } catalog;
  EXPECT_THROW((void)make_plan(parse(kSmallConfig), catalog), UserError);
}

TEST(Plan, APlanBeyondMeasureIsRefusedAtOnce) {
  const auto refusal = [](const ExperimentConfig& config, Catalog& catalog) {
    return testing::error_of([&] { (void)make_plan(config, catalog); });
  };
  ExperimentConfig config = parse(kSmallConfig);
  config.workloads.resize(400, config.workloads.front());
  config.methods.resize(300, config.methods.front());
  FakeCatalog catalog;
  EXPECT_NE(refusal(config, catalog).find("1 models x 400 workloads x 300 methods, 120000 cells"), std::string::npos);

  class Endless final : public Catalog {
   public:
    std::string protocol_card(const ModelEntry&, const ComponentEntry&, const ComponentEntry&,
                              results::CellKind) override {
      return "{}";
    }
    WorkloadSamples samples(const ModelEntry&, const ComponentEntry& workload, results::CellKind,
                            int64_t most) override {
      WorkloadSamples samples;
      for (int64_t i = 0; i < std::min(workload.limit.value_or(most), most); ++i) {
        samples.ids.push_back(std::to_string(i));
      }
      return samples;
    }
    ModelSize model_size(const ModelEntry&) override { return {}; }
    results::RunInput data_input(const ModelEntry&, const ComponentEntry&) override { return {}; }
  } endless;
  const std::string endless_refusal = refusal(parse(kSmallConfig), endless);
  EXPECT_NE(endless_refusal.find("workload needle: found more than 200000 samples"), std::string::npos)
      << endless_refusal << ": the workload that is one too many, after the four of qasper";
}

TEST(Plan, ServingCellsTakeAPartOfTheWorkloadForEachPoint) {
  const Overrides asked{.set = {R"(serving={"load": [0.5, 1.2], "requests": 2})"}};
  const Plan plan = plan_of(kSmallConfig, asked);
  ASSERT_EQ(plan.groups.size(), 4U);
  const CellGroup& serving = plan.groups[1];
  EXPECT_EQ(serving.kind, results::CellKind::serving);
  EXPECT_EQ(serving.sample_ids, (std::vector<std::string>{"0.5x", "1.2x"}));
  EXPECT_EQ(serving.requests, 2);
  EXPECT_EQ(serving.cells.size(), 4U);
  EXPECT_NE(serving.cells[0].record.engine_json.find("\"requests\":2"), std::string::npos);
  EXPECT_NE(serving.cells[0].record.engine_json.find("\"reload_share\":0.25"), std::string::npos) << "as it was";
  // A limit leaves fewer for each point, and then it is another cell.
  const Plan fewer = plan_of(kSmallConfig, {.set = asked.set, .limit = 3});
  EXPECT_EQ(fewer.groups[1].requests, 1);
  EXPECT_NE(fewer.groups[1].cells[0].record.cell_id, serving.cells[0].record.cell_id);
  EXPECT_EQ(fewer.groups[0].cells[0].record.cell_id, plan.groups[0].cells[0].record.cell_id);
  try {
    (void)plan_of(kSmallConfig, {.set = asked.set, .limit = 1});
    FAIL() << "one sample for two points";
  } catch (const UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "serving, workload qasper: found 1 samples, expected at least one for each of 2 points; raise the limit "
        "or list fewer loads");
  }
}

TEST(Plan, RequestsForRemotePrefixesAreTimedAndNothingElse) {
  const auto planned = [](const std::string& links) {
    return plan_of(kSmallConfig, {.set = {"timing={}", "remote_prefix=" + links}});
  };
  const Plan plan = planned("{}");
  ASSERT_EQ(plan.groups.size(), 2U) << "a group a workload";
  EXPECT_EQ(plan.groups[0].kind, results::CellKind::timing);
  const std::string same = plan.groups[0].cells[0].record.cell_id;
  EXPECT_EQ(plan.groups[0].cells[0].record.engine_json.find("draws"), std::string::npos) << "one draw is no setting";
  EXPECT_EQ(planned("{}").groups[0].cells[0].record.cell_id, same);
  EXPECT_NE(planned(R"({"remote_bytes_per_s": 1})").groups[0].cells[0].record.cell_id, same);
  const std::string socket = planned(R"({"store": "h:1"})").groups[0].cells[0].record.cell_id;
  EXPECT_NE(socket, same);
  EXPECT_EQ(planned(R"({"store": "h:2"})").groups[0].cells[0].record.cell_id, socket) << "wherever it is";

  const Plan pairs = plan_of(kSmallConfig, {.set = {R"(timing={"samples": 2})", R"(remote_prefix={"prompts": 2})"}});
  EXPECT_EQ(pairs.groups[0].sample_ids, (std::vector<std::string>{"qasper-0", "qasper-2"})) << "the first of each pair";
  EXPECT_THROW(plan_of(kSmallConfig, {.set = {"timing={}", R"(remote_prefix={"prompts": 99999})"}}), UserError);
}

TEST(Plan, StoredContextsAreServedAndNothingElse) {
  const std::string serving = R"(serving={"load": [0.5, 1.2], "requests": 40})";
  const std::string contexts = R"(contexts={"quality": "token_f1", "forms": [{"name": "snapkv", "keep": 0.25}]})";
  const Plan plan = plan_of(kSmallConfig, {.set = {serving, contexts}});
  ASSERT_EQ(plan.groups.size(), 2U) << "a group a workload";
  EXPECT_EQ(plan.groups[0].kind, results::CellKind::serving);
  EXPECT_EQ(plan.groups[0].requests, 4) << "four samples are the contexts of each of two points";
  EXPECT_EQ(plan.groups[1].requests, 6);
  const auto id = [&](const std::string& other_serving, const std::string& other_contexts) {
    return plan_of(kSmallConfig, {.set = {other_serving, other_contexts}}).groups[0].cells[0].record.cell_id;
  };
  const std::string same = plan.groups[0].cells[0].record.cell_id;
  EXPECT_EQ(id(serving, contexts), same);
  EXPECT_NE(id(R"(serving={"load": [0.5, 1.2], "requests": 41})", contexts), same);
  EXPECT_NE(id(serving, R"(contexts={"quality": "token_f1", "forms": [{"name": "snapkv", "keep": 0.5}]})"), same);
  EXPECT_NE(id(serving, R"(contexts={"quality": "token_f1", "memory_share": 0.2})"), same);
  EXPECT_NE(id(serving, R"(contexts={"quality": "token_f1", "memory_bytes": 1000000})"), same);
  const auto device = [&](const std::string& room) {
    return id(serving,
              R"(contexts={"quality": "token_f1", "forms": [{"name": "snapkv", "keep": 0.25}], )" + room + "}");
  };
  EXPECT_EQ(device(R"("device_share": 0.5, "device_bytes": 0)"), same) << "nothing lies there";
  EXPECT_NE(device(R"("device_share": 0.5)"), same);
  EXPECT_NE(device(R"("device_bytes": 5)"), same);
}

}  // namespace
}  // namespace kvarena::experiment
