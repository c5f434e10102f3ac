#include "harness/experiment/schema.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

namespace fs = std::filesystem;

/// Asks Python's jsonschema, an implementation that is not ours.
class JsonSchema : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c 'import jsonschema' 2>/dev/null") != 0) {
      GTEST_SKIP() << "Python's jsonschema is not installed";
    }
  }

  /// For each config "ok" or its first error.
  std::vector<std::string> outcomes(const nlohmann::json& schema, const std::vector<std::string>& configs) {
    nlohmann::json list = nlohmann::json::array();
    for (const std::string& config : configs) list.push_back(nlohmann::json::parse(config));
    write_file(folder_ / "schema.json", schema.dump());
    write_file(folder_ / "configs.json", list.dump());
    write_file(folder_ / "check.py",
               "import json, sys\n"
               "from jsonschema import Draft202012Validator as Validator\n"
               "schema, configs = (json.load(open(p)) for p in sys.argv[1:3])\n"
               "Validator.check_schema(schema)\n"
               "for config in configs:\n"
               "    errors = list(Validator(schema).iter_errors(config))\n"
               "    print('ok' if not errors else errors[0].json_path + ': ' + repr(errors[0].message))\n");
    const std::string command =
        fmt::format("cd {} && python3 check.py schema.json configs.json > answer.txt 2>&1", (folder_ / "").string());
    const bool answered = std::system(command.c_str()) == 0;
    std::istringstream lines(read_file(folder_ / "answer.txt"));
    EXPECT_TRUE(answered) << lines.str();
    std::vector<std::string> answers;
    for (std::string line; std::getline(lines, line);) answers.push_back(line);
    answers.resize(configs.size());
    return answers;
  }

  TemporaryFolder folder_;
};

TEST(Schema, DescribesEveryDeclaredParameter) {
  const nlohmann::json schema = config_schema(Zoo().components());
  const auto& snapkv = schema["$defs"]["method.snapkv"]["properties"];
  EXPECT_EQ(
      snapkv["keep"],
      nlohmann::json::parse(
          R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.5, "description": "fraction kept"})"));
  EXPECT_EQ(snapkv["pool"]["enum"], nlohmann::json::parse(R"(["avg", "max"])"));
  EXPECT_EQ(schema["$defs"]["method.vericache"]["properties"]["drafter"]["$ref"], "#/$defs/component");
  EXPECT_EQ(schema["properties"]["engine"]["properties"]["seed"]["type"], "integer");
  EXPECT_EQ(schema["required"], nlohmann::json::parse(R"(["name", "models", "workloads", "methods"])"));
}

TEST(Schema, IsTheSameEveryTime) {
  EXPECT_EQ(config_schema(Zoo().components()).dump(2), config_schema(Zoo().components()).dump(2));
}

TEST_F(JsonSchema, AgreesWithTheReaderAboutGoodConfigs) {
  const nlohmann::json schema = config_schema(Zoo().components());
  const std::vector<std::string> good = {
      kSmallConfig,
      R"({"$schema": "../schema.json", "name": "m", "models": [{"name": "x", "path": "x.gguf", "template": "none", "window": 64}],
          "workloads": ["needle"], "methods": ["full", {"name": "vericache", "drafter": {"name": "snapkv", "keep": 0.2}}],
          "engine": {"seed": 3, "max_new_tokens": 5}, "timing": {"repeats": 2}, "output": {"database": "d.db"},
          "table": {"rows": ["model", "method"], "columns": "workload", "cell": "{mean}", "average": true},
          "published": [{"model": "b", "workload": "needle", "method": "full", "metric": "f", "value": 1, "upper": 2,
             "statistic": "minimum", "source": "s"},
            {"metric": "f", "source": "t", "workloads": ["needle"], "rows": [{"model": "b", "method": "full", "values": [null]}]}]})",
  };
  for (const std::string& config : good) EXPECT_EQ(problems_of(config), "");
  EXPECT_EQ(outcomes(schema, good), std::vector<std::string>(good.size(), "ok"));
}

TEST_F(JsonSchema, AgreesWithTheReaderAboutBadConfigs) {
  const nlohmann::json schema = config_schema(Zoo().components());
  const std::vector<std::pair<std::string, std::string>> changes = {{"/methods/1/windw", "3"},
                                                                    {"/methods/2/bits", "9"},
                                                                    {"/methods/0", "\"snap\""},
                                                                    {"/workloads/0/limit", "0"},
                                                                    {"/engine", R"({"x": 1})"},
                                                                    {"/models/0", R"({"dtype": "f32"})"},
                                                                    {"/colour", "1"},
                                                                    {"/methods", "[]"},
                                                                    {"/name", "7"},
                                                                    {"/table", R"({"rows": "methods"})"},
                                                                    {"/methods/1/matrix", "[]"},
                                                                    {"/timing", R"({"repeats": 0})"},
                                                                    {"/methods/2/baseline", "3"}};
  std::vector<std::string> bad;
  for (const auto& [path, value] : changes) {
    nlohmann::json config = nlohmann::json::parse(kSmallConfig);
    config[nlohmann::json::json_pointer(path)] = nlohmann::json::parse(value);
    EXPECT_NE(problems_of(config.dump()), "") << path;
    bad.push_back(config.dump());
  }
  const std::vector<std::string> answers = outcomes(schema, bad);
  for (size_t i = 0; i < bad.size(); ++i)
    EXPECT_EQ(answers[i].rfind("$", 0), 0U) << changes[i].first << ": " << answers[i];
}

TEST_F(JsonSchema, AcceptsEveryConfigOfTheTree) {
  const fs::path configs = fs::path(KVARENA_SOURCE_DIR) / "configs";
  if (!fs::exists(configs / "schema.json")) GTEST_SKIP() << "configs/schema.json is not generated yet";
  const nlohmann::json schema = nlohmann::json::parse(read_file(configs / "schema.json"));
  std::vector<std::string> texts;
  std::vector<fs::path> names;
  for (const auto& file : fs::recursive_directory_iterator(configs)) {
    const fs::path relative = fs::relative(file.path(), configs);
    const bool of_a_paper = relative.begin()->string() == "papers" && relative.filename() != "paper.json";
    const bool experiment = of_a_paper || (!relative.has_parent_path() && relative != "schema.json");
    if (relative.extension() != ".json" || !experiment) continue;
    names.push_back(relative);
    texts.push_back(read_file(file.path()));
  }
  const std::vector<std::string> answers = outcomes(schema, texts);
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(answers[i], "ok") << names[i];
}

TEST(Models, EveryFileOfTheTreeIsReadable) {
  const fs::path models = fs::path(KVARENA_SOURCE_DIR) / "configs/models";
  int count = 0;
  for (const auto& file : fs::directory_iterator(models)) {
    const std::string name = file.path().stem().string();
    const std::string config =
        R"({"name": "m", "models": [")" + name + R"("], "workloads": ["qasper"], "methods": ["full"]})";
    EXPECT_EQ(problems_of(config), "") << name;
    ++count;
  }
  EXPECT_GE(count, 1);
}

}  // namespace
}  // namespace kvarena::experiment
