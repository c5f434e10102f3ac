#pragma once
// Shared by the experiment's tests: made-up components with declared parameters, a catalog and an evaluator without a
// model.

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/nested.h"
#include "harness/core/random.h"
#include "harness/experiment/config.h"
#include "harness/experiment/evaluator.h"
#include "harness/experiment/runner.h"
#include "harness/experiment/schema.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::experiment {

using kvarena::testing::TemporaryFolder;

using Declare = std::function<void(ParameterVisitor&)>;

/// A component for whatever name.
struct AnyComponent {
  static std::unique_ptr<AnyComponent> build(const nlohmann::json& /*settings*/, const std::string& /*place*/,
                                             std::vector<std::string>& /*problems*/) {
    return std::make_unique<AnyComponent>();
  }
};

/// Names and parameters of components that exist in these tests only.
struct Zoo {
  Zoo() = default;
  Zoo(const Zoo&) = delete;  // the declarations point into it
  Zoo& operator=(const Zoo&) = delete;

  bool flag = false;
  double keep = 0.5;
  int64_t window = 64, bits = 2, length = 512;
  std::string pool = "avg";
  Nested<AnyComponent> drafter;

  std::map<std::string, Declare> methods = {
      {"full", [](ParameterVisitor&) {}},
      {"snapkv",
       [this](ParameterVisitor& p) {
         p("keep", keep).above(0).max(1).doc("fraction kept");
         p("window", window).min(1);
         p("pool", pool).one_of({"avg", "max"});
       }},
      {"kivi", [this](ParameterVisitor& p) { p("bits", bits).min(1).max(8).required(); }},
      {"vericache",
       [this](ParameterVisitor& p) {
         p("draft_length", window).min(1);
         p("drafter", drafter);
       }},
  };
  std::map<std::string, Declare> workloads = {
      {"qasper", [](ParameterVisitor&) {}},
      {"needle", [this](ParameterVisitor& p) { p("length", length).min(16); }},
  };
  std::map<std::string, Declare> metrics = {{"token_f1", [this](ParameterVisitor& p) { p("lower", flag); }},
                                            {"exact_match", [](ParameterVisitor&) {}}};

  static Validator validator(const std::map<std::string, Declare>& family) {
    return [&family](const std::string& name, const nlohmann::json& settings, const std::string& place) {
      const auto it = family.find(name);
      if (it != family.end()) return read_parameters(settings, place, it->second);
      std::vector<std::string> names;
      for (const auto& [known, declare] : family) names.push_back(known);
      return std::vector<std::string>{
          describe({.place = place + ".name", .found = "\"" + name + "\"", .nearest = nearest_name(name, names)})};
    };
  }
  [[nodiscard]] Validators validators() const {
    return {.methods = validator(methods),
            .workloads = validator(workloads),
            .metrics = validator(metrics),
            .follows_memory = [](const std::string& name, const nlohmann::json&) { return name == "follower"; }};
  }
  [[nodiscard]] Components components() const {
    const auto family = [](const std::map<std::string, Declare>& members) {
      std::vector<ComponentInfo> list;
      for (const auto& [name, declare] : members) list.push_back({name, "about " + name, list_parameters(declare)});
      return list;
    };
    return {.methods = family(methods), .workloads = family(workloads), .metrics = family(metrics)};
  }
};

inline const Zoo& zoo() {
  static const Zoo instance;
  return instance;
}

inline LoadOptions tree_options(Overrides overrides = {}) {
  return {.models_folder = std::filesystem::path(KVARENA_SOURCE_DIR) / "configs/models",
          .overrides = std::move(overrides)};
}

inline ExperimentConfig parse(const std::string& text, const Overrides& overrides = {}) {
  return parse_config(text, "exp.json", tree_options(overrides), zoo().validators());
}

/// The problems of a config, one a line; "" when it has none.
inline std::string problems_of(const std::string& text, const Overrides& overrides = {}) {
  try {
    (void)parse(text, overrides);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kSmallConfig = R"({
  "name": "small",
  "models": ["smollm2-135m"],
  "workloads": [{"name": "qasper", "limit": 4}, {"name": "needle", "length": 64, "label": "needle"}],
  "methods": ["full", {"name": "snapkv", "matrix": {"keep": [0.25, 0.5]}}, {"name": "kivi", "bits": 2}],
  "metrics": ["token_f1"],
  "engine": {"noise_floor": 0}
})";

/// Six samples for every workload, and a card that can be changed.
class FakeCatalog final : public Catalog {
 public:
  WorkloadSamples samples(const ModelEntry&, const ComponentEntry& workload, results::CellKind, int64_t most) override {
    WorkloadSamples samples{
        .prompt_tokens = prompt_tokens, .most_prompt_tokens = prompt_tokens, .answer_tokens = answer_tokens};
    for (int64_t i = 0; i < std::min(workload.limit.value_or(6), int64_t{6}); ++i) {
      std::string id = fmt::format("{}-{}", workload.name, i);
      if (too_long.contains(id)) {
        ++samples.left_out;
      } else if (std::ssize(samples.ids) < most) {
        samples.ids.push_back(std::move(id));
      }
    }
    return samples;
  }
  ModelSize model_size(const ModelEntry&) override { return size; }
  results::RunInput data_input(const ModelEntry& model, const ComponentEntry& workload) override {
    return {.kind = "data",
            .name = workload.label,
            .sha256 = "00",
            .detail_json = origin ? origin(workload.label) : "{}",
            .model = model.label};
  }
  std::string protocol_card(const ModelEntry& model, const ComponentEntry&, const ComponentEntry&,
                            results::CellKind) override {
    return nlohmann::json{{"template", card}, {"dtype", model.dtype}, {"metrics", metrics}}.dump();
  }

  std::string missing_weights(const ModelEntry&, const ComponentEntry& method) override {
    return missing ? missing(method.label) : "";
  }

  std::string card = "auto";
  std::set<std::string> too_long;  // samples beyond the window
  double prompt_tokens = 0, answer_tokens = 0;
  ModelSize size;
  std::string metrics = "token_f1 v1";
  std::function<std::string(const std::string& workload)> origin;
  std::function<std::string(const std::string& method)> missing;
};

/// Results that depend on the cell and the sample alone, like a real evaluator's.
class FakeEvaluator : public Evaluator {
 public:
  std::vector<results::RunInput> inputs(const ModelEntry& model) override {
    return {{.kind = "model", .name = model.label, .sha256 = "00", .detail_json = "{}"}};
  }
  void begin_model(const ModelEntry& model, const EngineSettings&) override {
    ++loads;
    if (fail_loading) fail({.place = model.path, .found = "no checkpoint"});
  }
  void end_model(const ModelEntry&) override { ++unloads; }

  std::vector<SampleOutcome> evaluate(const EvalTask& task) override {
    ++calls;
    if (before_sample) before_sample(task);
    std::vector<SampleOutcome> outcomes;
    for (const PlannedCell* cell : task.cells) outcomes.push_back(one(task, *cell));
    return outcomes;
  }

  std::vector<results::MetricValue> cell_values(const PlannedCell& cell,
                                                const results::ResultsReader& results) override {
    double sum = 0;
    for (const auto& row : results.values(cell.record.cell_id, "token_f1")) sum += row.value;
    return {{.metric = "sum_f1", .value = sum, .unit = "fraction"}};
  }

  int loads = 0, unloads = 0, calls = 0;
  bool fail_loading = false;
  std::function<void(const EvalTask&)> before_sample;
  std::function<std::string(const EvalTask&, const PlannedCell&)> failure;
  std::function<bool(const PlannedCell&)> inactive;
  std::function<void(const EvalTask&, results::SampleResult&)> spoil;

 private:
  SampleOutcome one(const EvalTask& task, const PlannedCell& cell) const {
    SampleOutcome outcome;
    if (failure) outcome.failure = failure(task, cell);
    const RandomStream random(7, cell.record.cell_id + task.sample_id);
    results::SampleResult& result = outcome.result;
    result.prompt_sha256 = sha256(task.sample_id);
    result.prompt_tokens = 50;
    result.prediction = fmt::format("{} says {}", cell.record.method, random.below(1000, 0));
    result.finish_reason = "stop";
    result.active = !inactive || !inactive(cell);
    result.wall_s = 0.001;
    result.values = {{.metric = "token_f1", .value = random.uniform(1), .unit = "fraction"}};
    result.series = {{.name = "kl_nats", .values = {static_cast<float>(random.uniform(2))}, .unit = "nats"}};
    result.peak_bytes = {{"device", static_cast<int64_t>(random.below(1000, 3))}};
    if (spoil) spoil(task, result);
    return outcome;
  }
};

inline std::FILE* nowhere() {
  static std::FILE* const file = std::fopen("/dev/null", "w");
  return file;
}

/// Runs a config to its end, or until the evaluator or `stop` ends it.
struct Rig {
  explicit Rig(std::filesystem::path database, std::string config = kSmallConfig, Overrides overrides = {})
      : path(std::move(database)), text(std::move(config)), changes(std::move(overrides)) {}

  RunSummary run(const RunOptions& options = {}) {
    auto results = results::ResultsStore::open_or_create(path);
    const Plan plan = make_plan(parse(text, changes), catalog);
    Progress progress({.style = ProgressOptions::Style::quiet, .stream = sink, .now = {}});
    return run_plan(plan, evaluator, results, progress, stop, options);
  }
  [[nodiscard]] std::string digest() const { return results::ResultsReader(path).content_digest(); }

  std::filesystem::path path;
  std::string text;
  Overrides changes;
  FakeCatalog catalog;
  FakeEvaluator evaluator;
  std::atomic<bool> stop{false};
  std::FILE* sink = nowhere();
};

}  // namespace kvarena::experiment
