// Samples that do not fit the window are left out of all cells alike; timed requests have the length that is asked for.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/failure.h"
#include "harness/core/files.h"
#include "harness/evaluate/model_evaluator.h"
#include "metrics/distribution/divergence.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::evaluate {
namespace {

using experiment::ExperimentConfig;
using experiment::Plan;
using nlohmann::json;
using results::CellKind;

class RequestLength : public ::testing::Test {
 protected:
  RequestLength() { testing::write_tiny_model(folder_ / "tiny", 3); }

  [[nodiscard]] ExperimentConfig config(const json& workload, const json& more = json::object()) const {
    json text = {
        {"name", "tiny"},
        {"models", {{{"name", "tiny"}, {"path", (folder_ / "tiny").string()}, {"window", 400}, {"template", "none"}}}},
        {"workloads", {workload}},
        {"methods", {"full", {{"name", "snapkv"}, {"keep", 0.25}, {"window", 8}}}},
        {"engine", {{"max_new_tokens", 6}, {"noise_floor", 0}}}};
    text.merge_patch(more);
    return experiment::parse_config(text.dump(), "tiny.json", {}, registry_validators());
  }
  [[nodiscard]] ModelEvaluator evaluator(const ExperimentConfig& of) const {
    return {of, {.home = folder_.path(), .data_dir = {}, .hardware = {}}};
  }
  [[nodiscard]] Plan plan_of(const json& workload, const json& more = json::object()) const {
    const ExperimentConfig tiny = config(workload, more);
    ModelEvaluator opened = evaluator(tiny);
    return experiment::make_plan(tiny, opened);
  }
  /// Outcomes of one sample of a plan's group, as a worker finds them.
  static std::vector<experiment::SampleOutcome> outcomes(ModelEvaluator& opened, const experiment::CellGroup& group,
                                                         int64_t sample) {
    std::vector<const experiment::PlannedCell*> cells;
    for (const experiment::PlannedCell& cell : group.cells) cells.push_back(&cell);
    opened.begin_model(*group.model, {});
    return opened.evaluate({.model = *group.model,
                            .workload = *group.workload,
                            .kind = group.kind,
                            .sample_id = group.sample_ids[static_cast<size_t>(sample)],
                            .sample_index = sample,
                            .cells = cells});
  }

  testing::TemporaryFolder folder_;
  /// The second and fourth of five samples have more tokens than the window.
  const json needles_ = {{"name", "needle"}, {"words", {20, 400}}, {"depths", {50}}, {"samples", 5}};
};

TEST_F(RequestLength, SamplesBeyondTheWindowAreLeftOutAndCounted) {
  const Plan plan = plan_of(needles_);
  const experiment::CellGroup& group = plan.groups.front();
  ASSERT_EQ(group.sample_ids.size(), 3U);
  for (const experiment::PlannedCell& cell : group.cells) {
    EXPECT_EQ(cell.record.planned_samples, 3);
    EXPECT_EQ(cell.record.left_out_samples, 2);
  }
  const std::string text = describe_plan(plan, nullptr);
  EXPECT_NE(text.find(", quality: 3 samples; 2 beyond the window of 400; question"), std::string::npos) << text;

  const ExperimentConfig tiny = config(needles_);
  ModelEvaluator opened = evaluator(tiny);
  for (const int64_t sample : {2, 0, 1}) {  // in whatever order a resumed run asks
    for (const auto& outcome : outcomes(opened, group, sample)) {
      EXPECT_EQ(outcome.failure, "");
      EXPECT_LT(outcome.result.prompt_tokens, 400);
    }
  }
}

TEST_F(RequestLength, ALimitCountsSamplesOfTheWorkloadNotThoseThatFit) {
  json limited = needles_;
  limited["limit"] = 2;
  const Plan plan = plan_of(limited);
  const experiment::CellGroup& group = plan.groups.front();
  EXPECT_EQ(group.sample_ids.size(), 1U);
  EXPECT_EQ(group.left_out, 1);
  EXPECT_EQ(plan_of(needles_).groups.front().cells.front().record.cell_id, group.cells.front().record.cell_id);
}

TEST_F(RequestLength, EachKindOfCellLeavesOutWhatItsOwnAnswersDoNotFitBeside) {
  const json one = {{"name", "needle"}, {"words", {20}}, {"depths", {50}}, {"samples", 2}};
  const Plan plan = plan_of(one, {{"timing", {{"repeats", 1}, {"warmup", 0}, {"max_new_tokens", 300}}}});
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.groups[0].left_out, 0);
  EXPECT_EQ(plan.groups[1].kind, CellKind::timing);
  EXPECT_TRUE(plan.groups[1].sample_ids.empty());
  EXPECT_EQ(plan.groups[1].left_out, 2);
}

TEST_F(RequestLength, TimedRequestsHaveExactlyTheTokensThatAreAskedFor) {
  json end = json::parse(read_file(folder_ / "tiny/config.json"));
  end["eos_token_id"] = json::array();
  for (int64_t id = 0; id < 128; ++id) end["eos_token_id"].push_back(id);  // whatever the model says ends its answer
  write_file(folder_ / "tiny/config.json", end.dump());
  json timed = needles_;
  timed["matrix"] = {{"request_tokens", {{120, 20}, {350, 7}}}, {"question", {"seen", "unseen"}}};
  timed["label"] = "{request_tokens}, {question}";
  const ExperimentConfig tiny = config(timed, {{"timing", {{"repeats", 1}, {"warmup", 0}}}});
  ModelEvaluator opened = evaluator(tiny);
  const Plan plan = experiment::make_plan(tiny, opened);
  ASSERT_EQ(plan.groups.size(), 4U) << "timed, and neither scored nor repeated for noise";
  std::set<std::string> ids;
  for (const experiment::CellGroup& group : plan.groups) {
    EXPECT_EQ(group.kind, CellKind::timing);
    EXPECT_EQ(group.left_out, 0);
    for (const auto& cell : group.cells) ids.insert(cell.record.cell_id);
    for (const auto& outcome : outcomes(opened, group, 0)) {
      ASSERT_EQ(outcome.failure, "");
      EXPECT_EQ(outcome.result.prompt_tokens, group.workload->request_tokens->prompt);
      EXPECT_EQ(outcome.result.output_tokens, group.workload->request_tokens->answer);
    }
  }
  EXPECT_EQ(ids.size(), 8U) << "each length has cells of its own";
  for (const char* key : {"matrix", "label"}) timed.erase(key);
  for (const json& too_long : {json{390, 20}, json{20, 390}, json{20, 4000}}) {
    timed["request_tokens"] = too_long;
    EXPECT_EQ(plan_of(timed, {{"timing", json::object()}}).groups.front().left_out, 5) << too_long;
  }
}

TEST_F(RequestLength, AnAnswerEndsWhereTheModelEndsItUnlessThatIsIgnored) {
  json end = json::parse(read_file(folder_ / "tiny/config.json"));
  end["eos_token_id"] = json::array();
  for (int64_t id = 0; id < 128; ++id) end["eos_token_id"].push_back(id);
  write_file(folder_ / "tiny/config.json", end.dump());
  for (const bool ignored : {false, true}) {
    const ExperimentConfig tiny =
        config(needles_, {{"timing", {{"repeats", 1}, {"warmup", 0}, {"max_new_tokens", 9}, {"ignore_eos", ignored}}}});
    ModelEvaluator opened = evaluator(tiny);
    const Plan plan = experiment::make_plan(tiny, opened);
    const auto found = outcomes(opened, plan.groups.at(1), 0);
    EXPECT_EQ(found.front().failure, "");
    EXPECT_EQ(found.front().result.output_tokens, ignored ? 9 : 1);
  }
}

TEST_F(RequestLength, CutAndRepeatedPromptsKeepWhatIsAroundTheContext) {
  const datasets::Sample sample{.id = "s"};
  Request whole{.sample = &sample, .prompt = {1, 2, 10, 11, 12, 13, 14, 8, 9}, .question = {7}};
  whole.layout = {.prefix = 2, .question = 7, .text = "text", .ranges = std::vector<TextRange>(9)};
  const auto resized = [&](int64_t tokens) {
    Request request = whole;
    resize_prompt(request, tokens);
    EXPECT_EQ(request.asked_tokens(), tokens);
    EXPECT_EQ(request.layout.question, std::ssize(request.prompt) - 2);
    EXPECT_TRUE(request.layout.text.empty() && request.layout.ranges.empty());
    EXPECT_EQ(request.question, whole.question);
    return request.prompt;
  };
  EXPECT_EQ(resized(10), whole.prompt);
  EXPECT_EQ(resized(8), (std::vector<int32_t>{1, 2, 10, 11, 14, 8, 9}));
  EXPECT_EQ(resized(5), (std::vector<int32_t>{1, 2, 8, 9}));
  EXPECT_EQ(resized(13), (std::vector<int32_t>{1, 2, 10, 11, 12, 10, 11, 12, 13, 14, 8, 9}));
  EXPECT_EQ(resized(17), (std::vector<int32_t>{1, 2, 10, 11, 12, 13, 14, 10, 11, 10, 11, 12, 13, 14, 8, 9}));
  const std::string refusal = failure_of([&] { resize_prompt(whole, 4); });
  EXPECT_NE(refusal.find("5 tokens around a context of 5"), std::string::npos) << refusal;
}

TEST_F(RequestLength, SamplingIsTheConfigsAndTheWorkloadsWhereItSaysNothing) {
  const datasets::Generation warm{.temperature = 0.95, .top_p = 0.9};
  EXPECT_EQ(sampling_of({}, warm).temperature, 0.95);
  EXPECT_EQ(sampling_of({}, warm).top_p, 0.9);
  EXPECT_TRUE(sampling_of({.temperature = 0}, warm).greedy());
  EXPECT_EQ(sampling_of({.temperature = 0.5, .top_p = 1}, warm).top_p, 1);
  EXPECT_TRUE(sampling_of({}, {}).greedy());
  const auto card = [&](const json& engine) {
    const ExperimentConfig tiny = config("longbench-v2", {{"engine", engine}});
    ModelEvaluator opened = evaluator(tiny);
    return json::parse(
        opened.protocol_card(tiny.models.front(), tiny.workloads.front(), tiny.methods.front(), CellKind::quality));
  };
  EXPECT_EQ(card(json::object()).at("temperature"), 0.1) << "the workload's own";
  EXPECT_EQ(card(json::object()).at("kl_temperature"), 0.1);
  EXPECT_EQ(card({{"temperature", 0}}).at("temperature"), 0);
  EXPECT_EQ(card({{"temperature", 0}}).at("kl_temperature"), 1);
  EXPECT_FALSE(card({{"temperature", 0}}).contains("top_p"));
  EXPECT_EQ(card({{"temperature", 0.5}, {"top_p", 0.7}}).at("top_p"), 0.7);
}

/// Logits of the first token after the prompt, of full KV and of a method, are those of every temperature.
TEST_F(RequestLength, KlIsThatOfTheTemperatureThatIsAskedFor) {
  std::vector<double> first;
  for (const double temperature : {0.0, 1.0, 0.25}) {
    const ExperimentConfig tiny = config(needles_, {{"engine", {{"temperature", temperature}}}});
    ModelEvaluator opened = evaluator(tiny);
    const Plan plan = experiment::make_plan(tiny, opened);
    const auto found = outcomes(opened, plan.groups.front(), 0);
    ASSERT_EQ(found.at(1).failure, "");
    for (const results::Series& series : found.at(1).result.series) {
      if (series.name == "kl_nats") first.push_back(*std::ranges::max_element(series.values));
    }
  }
  ASSERT_EQ(first.size(), 3U);
  EXPECT_GT(first[0], 0);
  EXPECT_NE(first[2], first[0]);
}

}  // namespace
}  // namespace kvarena::evaluate
