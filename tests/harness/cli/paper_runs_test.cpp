// Every config of the papers runs scaled down: the default model, one sample, a few tokens; one workload of each
// metric, prompts cut to a length at which every method acts. What fails is a name, a setting or a metric that does not
// fit, a method that does nothing, or a printed number that is not of the kind of ours, whatever the model.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "datasets/data_files.h"
#include "metrics/registry.h"
#include "reports/experiment_data.h"
#include "reports/sections.h"
#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kPapers = fs::path(KVARENA_SOURCE_DIR) / "configs" / "papers";
constexpr int64_t kShortPrompt = 384, kLongPrompt = 640;  // tokens
constexpr int64_t kChunk = 128;                           // tokens, of reused entries
constexpr size_t kTextBytes = 2200;                       // where prompts are not cut by a workload's rule

std::vector<std::string> configs() {
  std::vector<std::string> found;
  for (const auto& file : fs::recursive_directory_iterator(kPapers)) {
    if (file.path().extension() == ".json" && file.path().filename() != "paper.json")
      found.push_back(file.path().lexically_relative(kPapers).string());
  }
  std::ranges::sort(found);
  return found;
}

/// Settings that the paper's index changes for a run on the default model.
std::vector<std::string> scaled_changes(const std::string& config) {
  const fs::path path = config;
  const json index = json::parse(std::ifstream(kPapers / path.parent_path() / "paper.json"));
  for (const json& item : index["items"]) {
    if (item["item"] == path.stem().string()) return item.value("scaled", std::vector<std::string>{});
  }
  return {};
}

std::string without_middle(const std::string& text) {
  return text.size() <= kTextBytes ? text : text.substr(0, kTextBytes / 2) + text.substr(text.size() - kTextBytes / 2);
}

/// Cuts long texts in their middle and lists to four elements.
void shorten(json& value) {
  if (value.is_string()) {
    value = without_middle(value.get_ref<const std::string&>());
  } else if (value.is_array()) {
    value.erase(value.begin() + std::min<ptrdiff_t>(4, std::ssize(value)), value.end());
  }
  if (value.is_structured()) std::ranges::for_each(value, shorten);
}

/// The first row of a data file, shortened; of a text its ends.
std::string first_row(const fs::path& file) {
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  if (file.extension() == ".txt") return without_middle(text);
  json row = json::parse(file.extension() == ".jsonl" ? text.substr(0, text.find('\n')) : text);
  if (row.is_array()) row.erase(row.begin() + 1, row.end());
  shorten(row);
  return row.dump() + "\n";
}

/// A data folder with the project's own files, those of workloads without a rule of truncation shortened.
fs::path make_data(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(datasets::samples_dir()))
    if (entry.is_directory()) fs::create_directory_symlink(entry.path(), folder / entry.path().filename());
  for (const char* file :
       {"lmcache-agentic-traces/traces.jsonl", "complexfuncbench/ComplexFuncBench.jsonl", "swe-bench-lite/test.jsonl",
        "pisanitizer/LongBench_incorrect_answer/hotpotqa.json", "longgenbench/Dataset_short.json",
        "longgenbench-gsm8k/LongGenBench_prompt.txt", "longwriter/longbench_write_en.jsonl"}) {
    const fs::path place = folder / file;
    fs::remove(folder / *fs::path(file).begin());
    fs::create_directories(place.parent_path());
    std::ofstream(place) << first_row(datasets::samples_dir() / file);
  }
  return folder;
}

/// Tokens of a prompt at which every method of the config acts: InfLLM's window alone has 512, ShadowKV's outliers 384,
/// and a prompt has to repeat itself for a lookup.
int64_t prompt_tokens(const json& config) {
  static const std::set<std::string> kWantMore = {"infllm", "ngram", "shadowkv"};
  const auto wants_more = [](const json& method) { return kWantMore.contains(method["name"].get<std::string>()); };
  return std::ranges::any_of(config["methods"], wants_more) ? kLongPrompt : kShortPrompt;
}

/// Lists of more than two values of a matrix cut to their ends: a method that acts at both acts between them.
void keep_ends(json& matrix) {
  for (json& values : matrix) {
    if (values.size() > 2) values = {values.front(), values.back()};
  }
}

/// Divides budgets in tokens that a short prompt would not fill.
void shrink_budgets(json& value) {
  if (value.is_number_integer() && value.get<int64_t>() >= 512) value = value.get<int64_t>() / 16;
  if (value.is_array()) std::ranges::for_each(value, shrink_budgets);
}

/// The config with one task of LongBench for each metric, one in all where it is timed, as of workloads that differ in
/// length alone; of a matrix its ends; short timing; budgets and chunks that suit short prompts.
json scaled_config(const std::string& name) {
  json config = json::parse(std::ifstream(kPapers / name));
  std::set<std::string> metrics;
  std::erase_if(config["workloads"].get_ref<json::array_t&>(), [&](const json& entry) {
    const std::string workload = entry.is_string() ? entry.get<std::string>() : entry["name"].get<std::string>();
    const datasets::WorkloadInfo& info = datasets::find_workload(workload, name).info;
    if (config.contains("timing")) return !metrics.insert(workload.substr(0, workload.find('/'))).second;
    return workload.starts_with("longbench/") && !metrics.insert(info.metrics.front()).second;
  });
  for (json& method : config["methods"]) {
    if (method.contains("tokens")) shrink_budgets(method["tokens"]);
    if (method.contains("matrix")) {
      keep_ends(method["matrix"]);
      if (method["matrix"].contains("tokens")) shrink_budgets(method["matrix"]["tokens"]);
    }
    const bool in_chunks = method["name"] != "full" && method["name"] != "full_recompute";
    if (name.starts_with("speccache/") && in_chunks) method["chunk"] = kChunk;
  }
  if (config.contains("timing")) {
    config["timing"].update({{"repeats", 1}, {"warmup", 0}, {"samples", 1}, {"max_new_tokens", 2}});
    if (config["timing"].contains("batch")) config["timing"]["batch"] = 2;
  }
  return config;
}

/// Settings of a run: short answers and prompts, then what the paper's index changes, no longer than a test needs.
std::vector<std::string> changes_of(const std::string& name, const json& config) {
  const int64_t answer = name.starts_with("vericache/") ? 16 : 3;  // rules over the tokens find a repetition in some
  std::map<std::string, int64_t> most = {{"engine.max_prompt_tokens", prompt_tokens(config)}, {"timing.batch", 2}};
  if (prompt_tokens(config) == kShortPrompt) {  // a lookup wants long answers too
    most["timing.max_new_tokens"] = 2;
    if (name.starts_with("vericache/")) most["engine.max_new_tokens"] = answer;
  }
  std::vector<std::string> changes = {fmt::format("engine.max_new_tokens={}", answer), "engine.noise_floor=0",
                                      fmt::format("engine.max_prompt_tokens={}", prompt_tokens(config))};
  for (const std::string& change : scaled_changes(name)) {
    const std::string key = change.substr(0, change.find('='));
    if (key == "serving.load" && !config.contains("contexts")) {  // a sample each, and there is one
      changes.emplace_back("serving.load=[1]");
      continue;
    }
    if (key.starts_with("workloads[")) {  // lengths; of timed requests the first workload is left
      if (key == "workloads[0].request_tokens") changes.emplace_back("workloads[0].request_tokens=[512,8]");
      if (key == "workloads[0].max_tokens") changes.emplace_back("workloads[0].max_tokens=512");
      if (key == "workloads[0].scored_tokens") changes.emplace_back("workloads[0].scored_tokens=8");
      continue;
    }
    const bool longer = most.contains(key) && std::stoll(change.substr(key.size() + 1)) > most[key];
    changes.push_back(longer ? fmt::format("{}={}", key, most[key]) : change);
    const bool one_more = key.starts_with("methods[") && key.ends_with("]");
    if (one_more && name.starts_with("speccache/")) changes.push_back(fmt::format("{}.chunk={}", key, kChunk));
  }
  return changes;
}

bool asks_judge(const std::string& metric) { return metric.starts_with("judged_"); }

/// Names under which a run stores a metric.
std::vector<std::string> names_of(const std::string& id) {
  std::vector<std::string> names = {id};
  for (const metrics::StoredMetric& stored : metrics::find_metric(id).stored) names.emplace_back(stored.name);
  return names;
}

/// Every metric of a workload is in its quality cells, every metric of the config in some cell.
void expect_metrics(const json& config, const reports::ExperimentData& data) {
  std::set<std::string> everywhere;
  for (const reports::CellData& cell : data.cells)
    for (const auto& [metric, column] : *cell.values) everywhere.insert(metric);
  const auto any_of = [](const std::string& id, const auto& holder) {
    return std::ranges::any_of(names_of(id), [&](const std::string& name) { return holder.contains(name); });
  };
  for (const json& entry : config.value("metrics", json::array())) {
    const std::string id = entry.is_string() ? entry.get<std::string>() : entry["name"].get<std::string>();
    EXPECT_TRUE(asks_judge(id) || any_of(id, everywhere)) << "no cell has " << id;
  }
  for (const reports::CellData& cell : data.cells) {
    if (cell.row.cell.kind != results::CellKind::quality) continue;
    const auto scores = std::ranges::find(cell.card, "metrics", &std::pair<std::string, std::string>::first);
    ASSERT_NE(scores, cell.card.end());
    std::istringstream list(scores->second);  // "qa_f1 v1, output_f1 v1"
    for (std::string id, version; list >> id >> version;)
      EXPECT_TRUE(asks_judge(id) || any_of(id, *cell.values)) << cell.row.cell.method << " lacks " << id;
  }
}

/// Shares are printed and measured in the range of their unit; of other quantities the magnitudes, in the mean over a
/// block of printed values, are near those printed.
void expect_magnitudes(const std::string& block, const std::string& unit, const std::vector<double>& printed,
                       const std::vector<double>& ours) {
  if (unit == "percent" || unit == "fraction") {
    const double whole = unit == "percent" ? 100 : 1;
    EXPECT_LE(std::ranges::max(printed), whole) << block;
    EXPECT_LE(std::ranges::max(ours), whole * (1 + 1e-9)) << block;
    const double most = std::ranges::max(printed);
    EXPECT_TRUE(unit == "fraction" || most == 0 || most > 1) << block << ": fractions said to be percentages";
    return;
  }
  if (unit == "ms" || unit == "s" || unit == "tokens/s") return;  // of a GPU there, of a busy machine here
  double logarithms = 0;
  int64_t pairs = 0;
  for (size_t i = 0; i < printed.size(); ++i) {
    if (printed[i] <= 0 || ours[i] <= 0) continue;
    logarithms += std::log10(ours[i] / printed[i]);
    ++pairs;
  }
  // Decades. Divergences are sums over answers, which have a few tokens here.
  const double most = unit == "×" ? 1.5 : unit == "nats" ? 3 : 2;
  EXPECT_LT(std::abs(logarithms), most * static_cast<double>(std::max<int64_t>(pairs, 1))) << block;
}

/// Every printed value of what was run has one of ours beside it, in its unit, of a magnitude that belongs to it.
void expect_comparable(const reports::ExperimentData& data) {
  const std::vector<std::string> methods = data.methods(), workloads = data.workloads();
  const auto holds = [](const auto& list, const std::string& name) {
    return std::ranges::find(list, name) != list.end();
  };
  std::map<std::string, std::array<std::vector<double>, 2>> blocks;
  std::map<std::string, std::string> units;
  for (const results::PublishedValue& value : data.experiment.published) {
    if (!holds(methods, value.method) || !holds(workloads, value.workload) || asks_judge(value.metric)) continue;
    const reports::CellData* cell = data.find(value.method, value.workload, results::CellKind::quality);
    if (cell != nullptr && cell->row.state == results::CellState::missing) continue;  // its weights are not here
    reports::ExperimentData one = data;
    one.experiment.published = {value};
    const auto section = reports::published_section(one);
    ASSERT_TRUE(section);
    const std::vector<reports::TableCell>& row = section->tables.at(0).rows.at(0).cells;
    const std::string block = value.metric + ", " + value.unit + ", " + value.workload;
    if (contains(row.at(7).text, "to hold it against")) continue;  // so small a model may score nothing
    if (contains(row.at(7).text, "of one sample")) continue;       // one has no variation
    if (contains(row.at(7).text, "lie around")) continue;          // settings of one sample need not
    ASSERT_TRUE(row.at(5).has_value()) << block << ", " << value.method << ": " << row.at(7).text;
    blocks[block][0].push_back(value.value);
    blocks[block][1].push_back(row.at(5).value);
    const bool whole = value.statistic == results::Statistic::mean || value.statistic == results::Statistic::minimum;
    const bool share = whole && !value.metric.ends_with("_overhead");  // which may be more than what it is of
    units[block] = share || value.unit != "percent" ? value.unit : "percent of the baseline";
  }
  for (const auto& [block, values] : blocks) expect_magnitudes(block, units[block], values[0], values[1]);
}

class PaperConfig : public ::testing::TestWithParam<std::string> {};

TEST_P(PaperConfig, RunsScaledDown) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  const json config = scaled_config(GetParam());
  std::ofstream(scratch / "config.json") << config;
  std::vector<std::string> words = {"run",          "config.json", "--model",
                                    "smollm2-135m", "--limit",     "1",
                                    "--quiet",      "--data",      make_data(scratch / "data").string(),
                                    "--database",   "run.db"};
  for (const std::string& change : changes_of(GetParam(), config)) {
    words.emplace_back("--set");
    words.push_back(change);
  }
  const Finished finished = run_kvarena(words, {.folder = scratch.path()});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const results::ResultsReader reader(scratch / "run.db");
  const reports::ExperimentData data = reports::read_experiment(reader, "");
  for (const reports::CellData& cell : data.cells) {
    EXPECT_TRUE(cell.row.state == results::CellState::done || cell.row.state == results::CellState::missing)
        << cell.row.cell.workload << ", " << cell.row.cell.method << ": " << cell.row.reason;
  }
  expect_metrics(config, data);
  expect_comparable(data);
}

TEST_P(PaperConfig, HasTheMethodsAndWorkloadsOfItsPrintedNumbersInFullAndScaledDown) {
  std::vector<std::string> words = {"run", (kPapers / GetParam()).string(), "--dry-run"};
  const auto said = [&words] { return run_kvarena(words).err; };
  EXPECT_FALSE(contains(said(), ": published: ")) << said();
  words.insert(words.end(), {"--model", "smollm2-135m"});
  for (const std::string& change : scaled_changes(GetParam())) words.insert(words.end(), {"--set", change});
  EXPECT_FALSE(contains(said(), ": published: ")) << said();
}

INSTANTIATE_TEST_SUITE_P(All, PaperConfig, ::testing::ValuesIn(configs()), [](const auto& info) {
  std::string name = info.param.substr(0, info.param.rfind('.'));
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace kvarena::testing
