#include "harness/experiment/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

TEST(Config, ReadsASmallExperiment) {
  const ExperimentConfig config = parse(kSmallConfig);
  EXPECT_EQ(config.name, "small");
  ASSERT_EQ(config.models.size(), 1U);
  EXPECT_EQ(config.models[0].name, "smollm2-135m");
  EXPECT_EQ(config.models[0].dtype, "bf16");
  EXPECT_EQ(config.models[0].kv_dtype, "bf16");
  EXPECT_EQ(config.models[0].file("/cache").string(), "/cache/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf");
  ASSERT_EQ(config.workloads.size(), 2U);
  EXPECT_EQ(config.workloads[0].limit, 4);
  EXPECT_EQ(config.workloads[1].label, "needle");
  EXPECT_EQ(config.workloads[1].settings_json, R"({"length":64})");
  ASSERT_EQ(config.methods.size(), 4U);
  EXPECT_TRUE(config.methods[0].baseline);
  EXPECT_EQ(config.methods[1].label, "snapkv keep=0.25");
  EXPECT_EQ(config.methods[2].label, "snapkv keep=0.5");
  EXPECT_EQ(config.methods[2].settings_json, R"({"keep":0.5})");
  EXPECT_EQ(config.methods[3].label, "kivi bits=2");
  EXPECT_FALSE(config.methods[3].baseline);
  EXPECT_EQ(config.engine.threads, 0);
  EXPECT_FALSE(config.timing);
}

TEST(Config, ModelsAreFoundInTheCacheOfHuggingFace) {
  const TemporaryFolder hub, home;
  setenv("HF_HUB_CACHE", hub.path().c_str(), 1);
  const auto add = [&](const std::string& folder) {
    std::filesystem::create_directories(hub / folder / "refs");
    std::filesystem::create_directories(hub / folder / "snapshots" / "abc");
    write_file(hub / folder / "refs" / "main", "abc");
    return hub / folder / "snapshots" / "abc";
  };
  const auto first = [&](const std::string& model) { return parse(kSmallConfig, {.models = {model}}).models.front(); };
  EXPECT_EQ(first("org/New-1.5").file(home.path()), home / "models/New-1.5") << "where it is expected";
  const auto snapshot = add("models--org--New-1.5");
  EXPECT_EQ(first("org/New-1.5").label, "New-1.5");
  EXPECT_EQ(first("org/New-1.5").file(home.path()), snapshot);
  EXPECT_EQ(first(snapshot).label, "New-1.5") << "not its revision";
  const auto llama = add("models--meta-llama--Llama-3.1-8B-Instruct");
  EXPECT_EQ(first("llama-3.1-8b-instruct").file(home.path()), llama) << "by the source that its file names";
  std::filesystem::create_directories(home / "models/llama-3.1-8b-instruct");
  EXPECT_EQ(first("llama-3.1-8b-instruct").file(home.path()), home / "models/llama-3.1-8b-instruct");
  unsetenv("HF_HUB_CACHE");
}

TEST(Config, EveryProblemComesAtOnceWithItsPlace) {
  const std::string problems = problems_of(R"({
    "name": "", "colour": 1,
    "models": ["smollm2-135"],
    "workloads": [{"name": "qasper", "limit": 0}, {"name": "needle", "length": 8}, 5],
    "methods": [{"name": "snap_kv"}, {"name": "snapkv", "keep": 1.4, "windw": 3}, {"name": "kivi"}],
    "engine": {"threads": "two"},
    "timing": {"repeats": 0},
    "output": [],
    "table": {"rows": "methods", "cell": "{maen}", "align": true}
  })");
  const auto has = [&](const std::string& line) {
    EXPECT_NE(fmt::format("\n{}\n", problems).find(fmt::format("\nexp.json: {}", line)), std::string::npos)
        << line << "\nin\n"
        << problems;
  };
  has("name: found \"\", expected a string that is not empty\n");
  has("colour: found an unknown key, expected one of:");
  has("models[0]: found model \"smollm2-135\", expected one of: ");
  has("workloads[0].limit: found 0, expected an integer at least 1\n");
  has("workloads[1].length: found 8, expected an integer at least 16\n");
  has("workloads[2]: found 5, expected a name, or an object with a \"name\"\n");
  has("methods[0].name: found \"snap_kv\"; did you mean \"snapkv\"?\n");
  has("methods[1].keep: found 1.4, expected a number above 0 and at most 1\n");
  has("methods[1].windw: found an unknown key, expected one of: keep, window, pool; did you mean \"window\"?\n");
  has("methods[2].bits: found nothing, expected an integer at least 1 and at most 8\n");
  has("engine.threads: found \"two\", expected an integer at least 0\n");
  has("timing.repeats: found 0, expected an integer at least 1\n");
  has("output: found []");
  has("table.rows: found \"methods\", expected one of: experiment, model, workload, method, metric; did you mean "
      "\"method\"?");
  has("table.cell: found {maen}, expected one of: mean, interval, low, high, n, difference, published; did you mean "
      "\"mean\"?");
  has("table.align: found an unknown key");
  EXPECT_NE(problems.find("did you mean \"smollm2-135m\"?"), std::string::npos);
}

TEST(Config, WhereAModelIsComputedIsChecked) {
  const auto problems = [](const std::string& entry) {
    return problems_of(R"({"name": "x", "workloads": ["qasper"], "methods": ["full"],
                           "models": [{"name": "smollm2-135m", )" +
                       entry + "}]}");
  };
  EXPECT_EQ(problems(R"("device": "cuda")"), "");
  EXPECT_NE(problems(R"("device": "gpu")").find("models[0].device: found \"gpu\""), std::string::npos);
  EXPECT_EQ(problems(R"("device": "cuda", "devices": [0, 1])"), "");
  EXPECT_NE(problems(R"("devices": [0, 1])").find("models[0].devices: found [0, 1], expected \"device\": \"cuda\""),
            std::string::npos);
  EXPECT_NE(problems(R"("device": "cuda", "devices": [1, 0, 1])")
                .find("models[0].devices: found [1, 0, 1], expected each device once"),
            std::string::npos);
  EXPECT_NE(problems(R"("device": "cuda", "devices": [-1])").find("models[0].devices"), std::string::npos);
  EXPECT_EQ(problems(R"("arithmetic": "bf16")"), "");
  EXPECT_NE(problems(R"("arithmetic": "bf16", "dtype": "f32")")
                .find("models[0].arithmetic: found bf16 and weights in f32 on \"cpu\", expected \"exact\", or weights"),
            std::string::npos);
  EXPECT_NE(problems(R"("arithmetic": "bf16", "device": "cuda")").find("models[0].arithmetic"), std::string::npos);
  const std::string former = problems(R"("tensor_parallel": 2, "ranks_at": "node1:80")");
  EXPECT_NE(former.find("models[0].tensor_parallel: found an unknown key, expected one of: "), std::string::npos)
      << former;
  EXPECT_NE(former.find("models[0].ranks_at: found an unknown key"), std::string::npos) << former;
  EXPECT_NE(former.find("device, devices"), std::string::npos) << former;
}

TEST(Config, MissingListsAreNamed) {
  const std::string problems = problems_of(R"({"models": []})");
  for (const char* line :
       {"name: found nothing", "models: found []", "workloads: found nothing", "methods: found nothing"}) {
    EXPECT_NE(problems.find(line), std::string::npos) << line << " in " << problems;
  }
  EXPECT_EQ(problems.find("metrics"), std::string::npos);
}

TEST(Config, SyntaxErrorsSayLineAndColumn) {
  EXPECT_NE(
      problems_of("{\n  \"name\": \"x\",\n  \"models\" [1]\n}").find("exp.json: line 3, column 12: found syntax error"),
      std::string::npos)
      << problems_of("{\n  \"name\": \"x\",\n  \"models\" [1]\n}");
  EXPECT_NE(problems_of("").find("line 1, column 1"), std::string::npos) << problems_of("");
  EXPECT_NE(problems_of("{\"name\": \"\xff\"}").find("line 1, column"), std::string::npos);
  EXPECT_NE(problems_of(R"({"name": 1e999})").find("exp.json: found"), std::string::npos);
}

TEST(Config, HostileTextIsAnErrorAndNeverACrash) {
  EXPECT_NE(problems_of(R"({"name": "a", "name": "b"})").find("the key \"name\" twice"), std::string::npos);
  EXPECT_NE(problems_of(std::string(100000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_NE(problems_of("[1, 2]").find("expected an object"), std::string::npos);
  EXPECT_NE(problems_of("null").find("expected an object"), std::string::npos);
  // Every prefix of a good config, and the config with each byte replaced: a message or a config, nothing else.
  const std::string good = kSmallConfig;
  const RandomStream random(11, "bytes of a config");
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(problems_of(good.substr(0, i)).empty()) << i;
    std::string bad = good;
    bad[i] = static_cast<char>(random.below(256, i));
    (void)problems_of(bad);
  }
}

TEST(Config, WrongTypesAnywhereAreMessages) {
  const nlohmann::json good = nlohmann::json::parse(kSmallConfig);
  const std::vector<nlohmann::json> values = {nullptr,
                                              true,
                                              -1,
                                              1.5,
                                              "x",
                                              nlohmann::json::array(),
                                              nlohmann::json::object(),
                                              nlohmann::json::array({1}),
                                              nlohmann::json{{"name", 3}}};
  int problems = 0;
  const nlohmann::json leaves = good.flatten();
  for (const auto& [path, old] : leaves.items()) {
    for (nlohmann::json::json_pointer at(path); !at.empty(); at.pop_back()) {
      for (const nlohmann::json& value : values) {
        nlohmann::json bad = good;
        bad[at] = value;
        problems += !problems_of(bad.dump()).empty();
      }
    }
  }
  EXPECT_GT(problems, 150);
}

TEST(Config, MatrixIsACrossProductAndReachesIntoNestedMethods) {
  const ExperimentConfig config =
      parse(R"({"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"], "methods": [
    "full", {"name": "vericache", "label": "VC {draft_length}/{drafter.keep}", "drafter": {"name": "snapkv"},
             "matrix": {"draft_length": [5, 25], "drafter.keep": [0.1, 0.2]}}]})");
  ASSERT_EQ(config.methods.size(), 5U);
  EXPECT_EQ(config.methods[1].label, "VC 5/0.1");
  EXPECT_EQ(config.methods[2].label, "VC 5/0.2");
  EXPECT_EQ(config.methods[4].settings_json, R"({"draft_length":25,"drafter":{"keep":0.2,"name":"snapkv"}})");
}

TEST(Config, AutomaticLabelsSpellNestedSettings) {
  const ExperimentConfig config =
      parse(R"({"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"], "methods": [
    {"name": "vericache", "draft_length": 25, "drafter": {"name": "snapkv", "keep": 0.2, "pool": "max"}}]})");
  EXPECT_EQ(config.methods[0].label, "vericache draft_length=25 drafter=snapkv(keep=0.2 pool=max)");
}

TEST(Config, MadMatricesAreExplained) {
  const auto with = [](const std::string& method) {
    return problems_of(R"({"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"], "methods": [)" + method +
                       "]}");
  };
  EXPECT_NE(with(R"({"name": "snapkv", "matrix": {"keep": 0.5}})").find("methods[0].matrix.keep: found 0.5"),
            std::string::npos);
  EXPECT_NE(with(R"({"name": "snapkv", "matrix": {"keep": []}})").find("at least one value"), std::string::npos);
  EXPECT_NE(with(R"({"name": "snapkv", "matrix": [1]})").find("methods[0].matrix: found [1]"), std::string::npos);
  EXPECT_NE(with(R"({"name": "snapkv", "keep": 1, "matrix": {"keep": [0.5]}})").find("each setting once"),
            std::string::npos);
  EXPECT_NE(with(R"({"name": "snapkv", "matrix": {"keep": [0.5, 1.4]}})").find("methods[0].keep: found 1.4"),
            std::string::npos);
  EXPECT_NE(with(R"({"name": "snapkv", "label": "S", "matrix": {"keep": [0.5, 0.6]}})").find("\"S\" twice"),
            std::string::npos);
  EXPECT_NE(with(R"({"name": "snapkv", "label": "S", "matrix": {"keep": [0.5]}})")
                .find("methods[0].label: found \"S\", which does not tell keep"),
            std::string::npos)
      << "a label that hides what a matrix sweeps";
  EXPECT_NE(with(R"({"name": "snapkv", "label": "S {kep}", "keep": 0.5})").find("{kep}"), std::string::npos);
  std::string big = "[0";
  for (int i = 1; i < 200; ++i) big += fmt::format(",{}", i);
  big += "]";
  EXPECT_NE(with(R"({"name": "snapkv", "matrix": {"a": )" + big + R"(, "b": )" + big + "}}").find("at most 10000"),
            std::string::npos);
}

TEST(Config, OneBaselineTheMarkedOrTheFirst) {
  const std::string head = R"({"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"], "methods": [)";
  const ExperimentConfig config = parse(head + R"({"name": "snapkv"}, {"name": "full", "baseline": true}]})");
  EXPECT_FALSE(config.methods[0].baseline);
  EXPECT_TRUE(config.methods[1].baseline);
  EXPECT_NE(problems_of(head + R"({"name": "snapkv", "baseline": true}, {"name": "full", "baseline": true}]})")
                .find("2 baselines"),
            std::string::npos);
  EXPECT_NE(problems_of(head + R"({"name": "full", "models": ["smollm2-135m"]}]})").find("\"models\" of full"),
            std::string::npos);
  EXPECT_NE(problems_of(head + R"("full", {"name": "snapkv", "models": "smollm2-135m"}]})").find("methods[1].models"),
            std::string::npos);
}

TEST(Config, ModelsCanBeGivenByPathAndNeedDistinctLabels) {
  const std::string tail = R"(, "workloads": ["qasper"], "methods": ["full"]})";
  const ExperimentConfig config = parse(
      R"({"name": "m", "models": [{"name": "mine", "path": "x/mine.gguf", "dtype": "f32", "window": 2048, "template": "none"},
             {"name": "smollm2-135m", "dtype": "f32", "kv_dtype": "bf16", "label": "f32"}])" +
      tail);
  EXPECT_EQ(config.models[0].window, 2048);
  EXPECT_EQ(config.models[0].chat_template, "none");
  EXPECT_EQ(config.models[1].dtype, "f32");
  EXPECT_EQ(config.models[1].kv_dtype, "bf16");
  EXPECT_NE(problems_of(R"({"name": "m", "models": ["smollm2-135m", {"name": "smollm2-135m", "dtype": "f32"}])" + tail)
                .find("\"smollm2-135m\" twice"),
            std::string::npos);
  EXPECT_NE(problems_of(R"({"name": "m", "models": [{"name": "../../etc/passwd"}])" + tail).find("found model"),
            std::string::npos);
}

TEST(Config, WeightsAsStoredAreForProcessorsAlone) {
  const auto text = [](const std::string& more) {
    return R"({"name": "m", "models": [{"name": "smollm2-135m", "dtype": "as stored")" + more +
           R"(}], "workloads": ["qasper"], "methods": ["full"]})";
  };
  EXPECT_EQ(parse(text("")).models[0].dtype, "as stored");
  EXPECT_EQ(parse(text("")).models[0].kv_dtype, "f32");
  EXPECT_EQ(parse(text(R"(, "kv_dtype": "bf16")")).models[0].kv_dtype, "bf16");
  EXPECT_NE(problems_of(text(R"(, "device": "cuda")"))
                .find("models[0].dtype: found weights as stored on a device, expected \"bf16\", \"f16\" or \"f32\""),
            std::string::npos);
  EXPECT_NE(problems_of(text(R"(, "engine": "transformers")")).find("transformers and weights as stored"),
            std::string::npos);
  EXPECT_NE(problems_of(text(R"(, "kv_dtype": "as stored")")).find("kv_dtype"), std::string::npos);
}

TEST(Config, PublishedValuesComeSinglyOrAsABlockOfATable) {
  const ExperimentConfig config = parse(R"({"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper", "needle"],
    "methods": ["full", {"name": "kivi", "bits": 2}], "published": [
      {"model": "big", "method": "full", "workload": "qasper", "metric": "token_f1", "value": 19.5, "unit": "percent",
       "source": "paper, table 1", "note": "4k"},
      {"model": "big", "method": "full", "workload": "all", "metric": "score", "value": 2, "upper": 3, "unit": "×",
       "statistic": "median drop", "source": "paper"},
      {"metric": "token_f1", "unit": "percent", "statistic": "relative", "bound": "<=", "source": "paper, table 2",
       "workloads": ["qasper", "needle"], "rows": [
        {"model": "big", "method": "full", "values": [1, 2.5]}, {"model": "big", "method": "kivi bits=4", "values": [3, null]}]}]})");
  ASSERT_EQ(config.published.size(), 5U);
  EXPECT_EQ(config.published[0].note, "4k");
  EXPECT_EQ(config.published[0].statistic, results::Statistic::mean);
  EXPECT_EQ(config.published[1].statistic, results::Statistic::median_drop);
  EXPECT_EQ(config.published[1].upper, 3);
  EXPECT_EQ(config.published[3].workload, "needle");
  EXPECT_EQ(config.published[3].value, 2.5);
  EXPECT_EQ(config.published[3].statistic, results::Statistic::relative);
  EXPECT_EQ(config.published[3].bound, "<=");
  EXPECT_EQ(config.published[3].source, "paper, table 2");
  ASSERT_EQ(config.warnings.size(), 1U) << "a workload \"all\" is known";
  EXPECT_NE(config.warnings[0].find("method \"kivi bits=4\""), std::string::npos);
  EXPECT_NE(config.warnings[0].find("did you mean \"kivi bits=2\"?"), std::string::npos);

  const std::string problems = problems_of(R"({"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"],
    "methods": ["full"], "published": [{"model": "big", "value": "x", "statistic": "mode"},
      {"model": "b", "method": "full", "workload": "qasper", "metric": "f", "value": 2, "upper": 1, "source": "s"},
      {"metric": "f", "source": "s", "workloads": ["qasper"], "rows": [{"model": "b", "method": "full", "values": [1, 2]}]}]})");
  EXPECT_NE(problems.find("published[0].value: found \"x\""), std::string::npos) << problems;
  EXPECT_NE(problems.find("published[0].source: found nothing"), std::string::npos) << problems;
  EXPECT_NE(problems.find("published[0].statistic: found \"mode\""), std::string::npos) << problems;
  EXPECT_NE(problems.find("published: found a range from 2 to 1"), std::string::npos) << problems;
  EXPECT_NE(problems.find("published[2].rows[0].values: found [1,2], expected a list of 1 numbers"), std::string::npos);
}

TEST(Config, PublishedValuesAreHeldAgainstSettingsAtEqualQuality) {
  const auto config_of = [](const std::string& statistic, const std::string& against) {
    return fmt::format(
        R"({{"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"], "methods": ["full", {{"name": "kivi", "bits": 2, "label": "kivi"}}],
             "published": [{{"model": "b", "method": "kivi", "workload": "all", "metric": "wait_ms", "value": 2,
                            "statistic": "{}", "against": {}, "source": "s"}}]}})",
        statistic, against);
  };
  const ExperimentConfig config = parse(config_of("at equal quality", R"(["full", "snapkv"])"));
  EXPECT_EQ(config.published.at(0).statistic, results::Statistic::equal_quality);
  EXPECT_EQ(config.published.at(0).against, (std::vector<std::string>{"full", "snapkv"}));
  ASSERT_EQ(config.warnings.size(), 1U);
  EXPECT_NE(config.warnings[0].find("method \"snapkv\""), std::string::npos) << config.warnings[0];
  const std::string alone = problems_of(config_of("minimum", R"(["full"])"));
  EXPECT_NE(
      alone.find("published[0].against: found it beside the statistic \"minimum\", expected one of the statistics: "
                 "relative, reduction, at equal quality"),
      std::string::npos)
      << alone;
  EXPECT_TRUE(parse(config_of("gain", R"(["full"])")).warnings.empty());
  EXPECT_NE(problems_of(config_of("at equal time", R"("full")")).find("published[0].against: found \"full\""),
            std::string::npos);
}

TEST(Config, PublishedValuesOfALabelWithNamesInBracesSpeakOfAllSettings) {
  const auto warnings_of = [](const std::string& method, const std::string& against) {
    return parse(fmt::format(
                     R"({{"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"],
               "methods": ["full", {{"name": "kivi", "matrix": {{"bits": [2, 4]}}, "label": "KIVI, {{bits}}"}}],
               "published": [{{"model": "b", "method": "{}", "workload": "all", "metric": "f", "value": 2,
                              "statistic": "gain", "against": ["{}"], "source": "s"}}]}})",
                     method, against))
        .warnings;
  };
  EXPECT_EQ(warnings_of("KIVI, {bits}", "full"), std::vector<std::string>());
  EXPECT_EQ(warnings_of("KIVI, 4", "KIVI, {b}"), std::vector<std::string>());
  EXPECT_EQ(warnings_of("KIVI {bits}", "{x}, {y}, {z}").size(), 2U);
}

TEST(Config, PublishedValuesOfALabelWithAChangedSettingFit) {
  const std::string text = R"({"name": "m", "models": ["smollm2-135m"],
    "workloads": [{"name": "needle", "label": "Needle", "length": 64}, {"name": "qasper", "label": "Papers"}],
    "methods": ["full", {"name": "kivi", "bits": 2, "label": "KIVI"}], "published": [
      {"model": "b", "method": "KIVI", "workload": "Needle", "metric": "f", "value": 2, "source": "s"}]})";
  EXPECT_EQ(parse(text, {.set = {"workloads.Needle.length=128", "methods.KIVI.bits=4"}}).warnings,
            std::vector<std::string>());
  const std::vector<std::string> warnings = parse(text, {.set = {"workloads.Needle.label=Hay"}}).warnings;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("workload \"Needle\", which this experiment does not have"), std::string::npos);
}

TEST(Config, ABatchOfAMethodIsOfWorkloadsAndModelsThatAreThere) {
  const auto config_of = [](const std::string& batch, const std::string& timing = R"(, "timing": {})") {
    return fmt::format(R"({{"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"],
                            "methods": [{{"name": "full", "batch": {}}}]{}}})",
                       batch, timing);
  };
  EXPECT_EQ(parse(config_of("16")).warnings, std::vector<std::string>());
  const ExperimentConfig config = parse(config_of(R"({"qaspr": 2, "qasper": {"smollm": 3}})"));
  ASSERT_EQ(config.warnings.size(), 2U);
  EXPECT_NE(config.warnings[0].find("batch of full: found workload \"qaspr\""), std::string::npos)
      << config.warnings[0];
  EXPECT_NE(config.warnings[1].find("found model \"smollm\""), std::string::npos) << config.warnings[1];
  for (const char* wrong : {"0", "1.5", "\"two\"", "{}", R"({"qasper": {"smollm2-135m": {"x": 1}}})"}) {
    EXPECT_NE(problems_of(config_of(wrong)).find("methods[0].batch: found"), std::string::npos) << wrong;
  }
  EXPECT_NE(problems_of(config_of("16", "")).find("\"batch\" of full and no \"timing\""), std::string::npos);
}

TEST(Config, LayersFollowTheMemoryOfATimedBatch) {
  const auto problems = [](const std::string& groups) -> std::string {
    Validators validators = zoo().validators();
    validators.methods = [](const std::string&, const nlohmann::json&, const std::string&) {
      return std::vector<std::string>();
    };
    try {
      (void)parse_config(fmt::format(R"({{"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"], "methods":
                                         ["full", "follower"]{}}})",
                                     groups),
                         "exp.json", tree_options(), validators);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(problems(R"(, "timing": {"device_mib": 100})"), "");
  const std::string expected = "expected \"timing\" with \"device_mib\", which the requests of a batch share";
  const std::string adaptive = "exp.json: methods: found follower, which follows the memory of a batch, and ";
  EXPECT_EQ(problems(""), adaptive + "no limit of memory, " + expected);
  EXPECT_EQ(problems(R"(, "timing": {})"), adaptive + "no limit of memory, " + expected);
  EXPECT_EQ(problems(R"(, "timing": {"device_mib": 100}, "serving": {})"),
            adaptive + "a group \"serving\" or \"remote_prefix\", " + expected);
}

TEST(Config, CanonicalFormDependsOnWhatIsMeantOnly) {
  const ExperimentConfig a = parse(R"({"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"],
    "methods": ["full", {"name": "snapkv", "keep": 0.5, "window": 8}]})");
  const ExperimentConfig b = parse(R"({"methods": [{"name": "full"}, {"window": 8, "keep": 0.5, "name": "snapkv"}],
    "workloads": [{"name": "qasper"}], "models": [{"name": "smollm2-135m"}], "name": "m", "output": {"database": "x.db"}})");
  EXPECT_EQ(a.canonical_json, b.canonical_json);
}

TEST(Config, FilesAreNamedInMessages) {
  TemporaryFolder folder;
  const auto path = folder / "c.json";
  write_file(path, "{\"name\": 3}");
  try {
    (void)load_config(path, tree_options(), zoo().validators());
    FAIL() << "a config without anything was read";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).rfind(path.string() + ": name: found 3", 0), 0U) << error.what();
  }
  EXPECT_THROW((void)load_config(folder / "absent.json", tree_options(), zoo().validators()), UserError);
}

TEST(Config, OnlyAnEmulatedLinkHasARateToChange) {
  const auto problems = [](const std::string& engine) {
    return problems_of(kSmallConfig, {.set = {"engine=" + engine}});
  };
  EXPECT_EQ(parse(kSmallConfig).engine.host_link, "real");
  EXPECT_EQ(problems(R"({"host_link": "pcie4_x16", "host_link_bytes_per_s": 1e9})"), "");
  EXPECT_NE(problems(R"({"host_link_bytes_per_s": 1e9})").find("engine.host_link_bytes_per_s: found a rate"),
            std::string::npos);
}

TEST(Config, ServingSettingsAreCheckedTogether) {
  const auto problems = [](const std::string& serving) {
    return problems_of(kSmallConfig, {.set = {"serving=" + serving}});
  };
  EXPECT_EQ(problems(R"({"load": [0.5, 1]})"), "");
  EXPECT_EQ(problems(R"({"arrivals": "clients", "load": [1, 8]})"), "");
  EXPECT_EQ(problems(R"({"arrivals": "clients", "load": [1.5]})"),
            "exp.json: serving.load: found 1.5 clients, expected whole numbers");
  EXPECT_EQ(problems(R"({"arrivals": "trace"})"),
            "exp.json: serving.trace: found nothing, expected a file of arrivals");
  EXPECT_EQ(problems(R"({"arrivals": "sessions", "think": 0})"), "");
  EXPECT_EQ(problems(R"({"think": 2})"),
            "exp.json: serving.think: found 2, expected nothing unless arrivals is \"sessions\"");
  EXPECT_EQ(problems(R"({"trace": "a.csv"})"),
            "exp.json: serving.trace: found a.csv, expected nothing unless arrivals is \"trace\"");
  EXPECT_EQ(problems(R"({"pass_tokens": 8, "max_running": 8})"),
            "exp.json: serving.max_running: found 8, expected fewer than the 8 tokens of a pass");
  EXPECT_EQ(problems(R"({"load": []})"), "exp.json: serving.load: found no point, expected at least one");
  EXPECT_EQ(problems(R"({"load": [1, 1]})"), "exp.json: serving.load: found a point twice, expected each once");
  EXPECT_NE(problems(R"({"load": [-1]})").find("serving.load"), std::string::npos);
}

TEST(Config, RemotePrefixesAreOfTimingCells) {
  const ExperimentConfig config = parse(kSmallConfig, {.set = {"timing={}", R"(remote_prefix={"remote_devices": 2})"}});
  EXPECT_EQ(config.remote_prefix->remote_devices, 2);
  EXPECT_NE(config.canonical_json.find("\"remote_devices\":2"), std::string::npos);
  const auto told = [](const std::vector<std::string>& set, const std::string& words) {
    const std::string all = problems_of(kSmallConfig, {.set = set});
    EXPECT_NE(all.find(words), std::string::npos) << all;
  };
  told({"remote_prefix={}"}, "remote_prefix: found no \"timing\" beside it");
  told({"timing={}", R"(remote_prefix={"remote_devices": 0})"}, "remote_prefix.remote_devices");
  told({"timing={}", R"(remote_prefix={"remote_byte_per_s": 1})"}, "remote_bytes_per_s");
  told({"timing={}", R"(remote_prefix={"remote_bytes_per_s": 0})"}, "found a link without a rate and no \"store\"");
  told({R"(serving={"stored_prompts": true})", "contexts={}"},
       "serving.stored_prompts: found true beside \"contexts\"");
  const ExperimentConfig socket =
      parse(kSmallConfig, {.set = {"timing={}", R"(remote_prefix={"remote_bytes_per_s": 0, "store": "h:1"})"}});
  EXPECT_EQ(socket.remote_prefix->store, "h:1");
}

TEST(Config, StoredContextsHaveFormsAndSettingsOfTheirOwn) {
  const auto parsed = [](const std::string& contexts) {
    return parse(kSmallConfig, {.set = {"serving={}", "contexts=" + contexts}});
  };
  const ExperimentConfig config = parsed(
      R"({"quality": "token_f1", "disk_share": 2, "forms": [{"name": "snapkv", "matrix": {"keep": [0.25, 0.5]}}]})");
  ASSERT_EQ(config.contexts->forms.size(), 2U);
  EXPECT_EQ(config.contexts->forms[1].settings_json, R"({"keep":0.5})");
  EXPECT_EQ(config.contexts->disk_share, 2);
  EXPECT_FALSE(config.contexts->on_device());
  EXPECT_EQ(config.canonical_json.find("device_"), std::string::npos) << "as before there was such a tier";
  EXPECT_TRUE(parsed(R"({"quality": "token_f1", "device_share": 0.1})").contexts->on_device());
  EXPECT_NE(config.canonical_json.find("\"disk_share\":2"), std::string::npos);
  const auto problems = [](const std::string& contexts, bool serving = true) {
    Overrides asked{.set = {"contexts=" + contexts}};
    if (serving) asked.set.emplace_back("serving={}");
    return problems_of(kSmallConfig, asked);
  };
  const auto told = [&](const std::string& contexts, const std::string& words, bool serving = true) {
    const std::string all = problems(contexts, serving);
    EXPECT_NE(all.find(words), std::string::npos) << contexts << ": " << all;
  };
  told(R"({"quality": "token_f1"})", "contexts: found no \"serving\" beside it", false);
  told(R"({"quality": "token_f2"})", "contexts.quality");
  told(R"({"quality": "token_f1", "memory_bytes_per_s": -1})", "contexts.memory_bytes_per_s");
  told(R"({"quality": "token_f1", "forms": [{"name": "snapkw"}]})", "contexts.forms[0]");
  told(R"({"quality": "token_f1", "forms": [{"name": "snapkv", "keep": 2}]})", "contexts.forms[0].keep");
  told(R"({"quality": "token_f1", "memory_shore": 0.1})", "memory_share");
}

}  // namespace
}  // namespace kvarena::experiment
