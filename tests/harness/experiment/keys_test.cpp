// No key of a config is dead: each changes what is planned, what is stored, or what a report shows.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "harness/experiment/overrides.h"
#include "reports/experiment_report.h"
#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;

/// Everything that a run of the config leaves behind: the cells it plans, the files it writes, and the report's pages.
std::string observable(const std::string& text) {
  std::string seen;
  TemporaryFolder folder;
  Rig rig(folder / "r.db", text);
  const ExperimentConfig config = parse(text);
  if (!config.metrics.empty()) rig.catalog.metrics = config.metrics.front().name + " v1";
  const Plan plan = make_plan(config, rig.catalog);
  seen += plan.config->output.database + '\n';
  for (const CellGroup& group : plan.groups) {
    for (const PlannedCell& cell : group.cells) {
      const results::CellRecord& r = cell.record;
      seen += fmt::format("{} {} {} {} {} {} {}\n", r.cell_id, r.method, r.workload, r.model, r.baseline, r.position,
                          r.planned_samples);
    }
  }
  (void)rig.run();
  const results::ResultsReader results(rig.path);
  const reports::ExperimentData data = reports::read_experiment(results, "");
  seen += report_of(data.runs.back()) + '\n';
  reports::Document document = reports::experiment_report(data);
  document.provenance.clear();  // of this run alone
  for (const reports::Format format :
       {reports::Format::html, reports::Format::markdown, reports::Format::latex, reports::Format::csv})
    seen += render(document, format);
  return seen;
}

/// A config with a group of settings, and the groups that it needs beside it.
json config_with(const std::string& group) {
  json config = json::parse(kSmallConfig);
  config["workloads"] = {{{"name", "qasper"}, {"limit", 3}, {"label", "q"}},
                         {{"name", "needle"}, {"length", 64}, {"label", "n"}}};
  config["models"] = {{{"name", "smollm2-135m"}, {"label", "small"}}, {{"name", "smollm2-135m"}, {"label", "large"}}};
  config["methods"].push_back({{"name", "kivi"}, {"bits", 4}, {"label", "four"}});
  config["published"] = {{{"model", "small"},
                          {"workload", "q"},
                          {"method", "full"},
                          {"metric", "token_f1"},
                          {"value", 19.5},
                          {"unit", "percent"},
                          {"source", "table 1"}}};
  config["table"] = {{"cell", "{mean} {published}"}};
  if (group == "engine") config["engine"] = {{"host_link", "pcie3_x16"}};  // which has a rate to change
  if (group == "models" || group == "engine" || group == "timing" || group == "remote_prefix")
    config["timing"] = json::object();
  if (group == "remote_prefix") config["remote_prefix"] = json::object();
  if (group == "serving" || group == "contexts") config["serving"] = {{"load", {0.5}}};
  if (group == "contexts") config["contexts"] = {{"quality", "token_f1"}};
  return config;
}

/// Another value than the default, by what the schema says of the key.
json another_value(const json& schema) {
  const json standard = schema.value("default", json());
  if (schema.contains("enum")) {
    const json& last = schema["enum"].back();  // the first may be what an empty default means
    return last != standard ? last : schema["enum"].front();
  }
  const std::string type = schema.value("type", "");
  if (type == "boolean") return standard.is_null() || !standard.get<bool>();
  if (type == "integer")
    return (standard.is_null() ? schema.value("minimum", int64_t{1}) : standard.get<int64_t>()) + 1;
  if (type == "number") {
    const double value = standard.is_null() ? 3.0 : standard.get<double>();
    return value == 0 ? json(0.5) : json(value / 2);
  }
  return type == "array" ? json{1} : json("another");
}

/// Changes that the schema alone cannot make: other keys that belong to them, values that are checked.
json changed(json config, const std::string& group, const std::string& key, const json& schema) {
  const std::map<std::string, json> special = {
      {"engine.host_link", "ethernet_10g"}, {"engine.top_p", 0.5},
      {"serving.load", {0.5, 0.9}},         {"serving.requests", 1},
      {"contexts.quality", "exact_match"},  {"contexts.forms", {{{"name", "kivi"}, {"bits", 2}}}},
      {"table.rows", {"workload"}},         {"table.columns", {"metric"}},
      {"table.cell", "{mean} of {n}"},      {"timing.samples", 2},
  };
  const auto found = special.find(group + "." + key);
  config[group][key] = found == special.end() ? another_value(schema) : found->second;
  if (group == "serving" && key == "trace") config[group]["arrivals"] = "trace";
  if (group == "serving" && key == "think") config[group]["arrivals"] = "sessions";
  if (group == "serving" && key == "arrivals") config[group] = {{"arrivals", "clients"}, {"load", {2}}};
  return config;
}

const json& properties() {
  static const json all = config_schema(zoo().components())["properties"];
  return all;
}

class ConfigKeys : public ::testing::TestWithParam<std::string> {};

TEST_P(ConfigKeys, OfAGroupEachChangeSomething) {
  const std::string& group = GetParam();
  const json base = config_with(group);
  const std::string before = observable(base.dump());
  const json& keys = properties().at(group).at("properties");
  ASSERT_FALSE(keys.empty());
  for (const auto& [key, schema] : keys.items())
    EXPECT_TRUE(observable(changed(base, group, key, schema).dump()) != before) << group << "." << key;
}

INSTANTIATE_TEST_SUITE_P(All, ConfigKeys,
                         ::testing::Values("engine", "timing", "remote_prefix", "serving", "contexts", "output",
                                           "table"),
                         [](const auto& info) { return info.param; });

TEST(ConfigKeys, OfAModelEachChangeSomething) {
  const json base = config_with("models");
  // How a server is asked decides no result; tests of the evaluator show what these do.
  const std::set<std::string> of_requests = {"key_variable", "request_timeout_s", "request_tries",
                                             "requests_per_minute", "concurrency"};
  const std::set<std::string> of_servers = {"endpoint", "engine", "model", "prompts"};
  for (const auto& [key, schema] : properties().at(json::json_pointer("/models/items/else/properties")).items()) {
    if (of_requests.contains(key)) continue;
    json own = base;
    if (key == "devices") own["models"][0]["device"] = "cuda";
    if (of_servers.contains(key)) own["models"][0].update({{"endpoint", "http://a"}, {"engine", "vllm"}});
    json other = own;
    other["models"][0][key] = key == "name" ? json("llama-3.1-8b-instruct") : another_value(schema);
    EXPECT_TRUE(observable(other.dump()) != observable(own.dump())) << key;
  }
}

/// Keys beside a component's own parameters, and one of those, in each list of components.
TEST(ConfigKeys, OfComponentsEachChangeSomething) {
  const json base = config_with("");
  const std::string before = observable(base.dump());
  const std::vector<std::pair<std::string, json>> changes = {{"/workloads/0/name", "needle"},
                                                             {"/workloads/0/label", "another"},
                                                             {"/workloads/0/limit", 2},
                                                             {"/workloads/1/length", 65},
                                                             {"/workloads/1/request_tokens", {16, 17}},
                                                             {"/workloads/1/matrix", {{"length", {16, 17}}}},
                                                             {"/methods/3/name", "snapkv"},
                                                             {"/methods/3/label", "another"},
                                                             {"/methods/3/bits", 5},
                                                             {"/methods/3/baseline", true},
                                                             {"/methods/1/matrix/keep", {0.25}},
                                                             {"/metrics/0", {{"name", "exact_match"}}}};
  for (const auto& [path, value] : changes) {
    json other = base;
    const json::json_pointer at(path);
    other[at] = value;
    if (path == "/workloads/1/matrix") {
      other["workloads"][1].erase("length");
      other["workloads"][1].erase("label");
    }
    if (path == "/workloads/1/request_tokens") other["timing"] = json::object();
    if (path == "/methods/3/name") other["methods"][3].erase("bits");
    if (path == "/metrics/0") other["table"]["columns"] = {"metric"};
    EXPECT_TRUE(observable(other.dump()) != before) << path;
  }
  json timed = base;
  timed["timing"] = json::object();
  json own_batch = timed;
  own_batch["methods"][3]["batch"] = 3;
  EXPECT_TRUE(observable(own_batch.dump()) != observable(timed.dump()));
}

TEST(ConfigKeys, OfTheTopEachChangeSomethingOrAreAGroup) {
  const json base = config_with("");
  const std::string before = observable(base.dump());
  // For editors alone; the last two are changed key by key here and above.
  const std::set<std::string> elsewhere = {"$schema", "models", "workloads", "methods", "metrics"};
  for (const auto& [key, schema] : properties().items()) {
    if (schema.contains("properties") || elsewhere.contains(key) || key == "published") continue;
    json other = base;
    other[key] = "another";
    EXPECT_TRUE(observable(other.dump()) != before) << key;
  }
  for (const auto& [key, schema] : properties().at(json::json_pointer("/published/items/else/properties")).items()) {
    json own = base;
    if (key == "against") own["published"][0]["statistic"] = "at equal quality";
    json other = own;
    other["published"][0][key] = key == "value"      ? json(20.5)
                                 : key == "upper"    ? json(30)
                                 : key == "workload" ? json("n")
                                 : key == "against"  ? json{"four"}
                                                     : another_value(schema);
    EXPECT_TRUE(observable(other.dump()) != observable(own.dump())) << "published." << key;
  }
}

}  // namespace
}  // namespace kvarena::experiment
