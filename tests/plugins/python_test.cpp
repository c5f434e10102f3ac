// Methods in Python files: restatements of published scorers and budget rules keep the entries that those in C++ keep;
// what goes wrong there is a sentence, and costs one cell.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/results/results_reader.h"
#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kScorers = KVARENA_SOURCE_DIR "/tests/plugins/scorers.py";
const std::string kPresses = KVARENA_SOURCE_DIR "/python/kvarena/plugins/press.py";

class PythonMethods : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("${KVARENA_PYTHON:-python3} -c 'import numpy' 2>/dev/null") != 0) {
      GTEST_SKIP() << "Python has no numpy: run scripts/setup, or set KVARENA_PYTHON";
    }
  }

  static const TinyModelFolder& model() {
    static const TinyModelFolder folder;
    return folder;
  }

  static Finished inspect(const std::string& method) {
    std::string ids;
    for (int i = 0; i < 150; ++i) ids += std::to_string(2 + i * i % 290) + ",";
    const std::string plugin = contains(method, "kvpress") ? kPresses : kScorers;
    return run_kvarena({"--plugin", plugin, "inspect", "--model", model().path(), "--ids", ids, "--method", method});
  }

  /// Positions that each head of each layer holds.
  static json kept(const std::string& method) {
    const Finished finished = inspect(method);
    EXPECT_EQ(finished.code, 0) << finished.err;
    json positions = json::array();
    const json result = json::parse(finished.out, nullptr, false);
    for (const json& layer : result.value("layers", json::array())) positions.push_back(layer.at("positions"));
    return positions;
  }
};

TEST_F(PythonMethods, KeepWhatTheirTwinsInCxxKeep) {
  for (const std::string settings : {"knorm:keep=0.3", "keydiff:keep=0.3", "snapkv:keep=0.3,window=8",
                                     "snapkv:keep=0.3,window=8,kernel=3,pool=max", "expected_attention:keep=0.3"}) {
    const json own = kept("py_" + settings);
    EXPECT_EQ(own.size(), 3U);
    EXPECT_EQ(own.at(0).at(0).size(), 45U);
    EXPECT_EQ(own, kept(settings)) << settings;
  }
}

TEST_F(PythonMethods, AreWrappedAndRaggedAsThoseInCxx) {
  for (const std::string rest : {"knorm:keep=0.3,budget_rule=heads", "knorm:keep=0.3,decode_interval=4"}) {
    EXPECT_EQ(kept("py_" + rest), kept(rest)) << rest;
  }
  for (const char* wrapper : {"adakv", "criticalkv"}) {
    for (const char* settings : {R"(keydiff")", R"(snapkv","window":8)"}) {
      const auto wrapped = [&](const char* mark) {
        return kept(fmt::format(R"({{"name":"{}","keep":0.3,"scorer":{{"name":"{}{}}}}})", wrapper, mark, settings));
      };
      const json own = wrapped("py_");
      EXPECT_EQ(own, wrapped("")) << wrapper << settings;
      EXPECT_NE(own, kept("keydiff:keep=0.3")) << wrapper << settings;
    }
  }
  EXPECT_NE(kept("py_last_votes:keep=0.3,window=4"), kept("py_last_votes:keep=0.3,window=40"));
}

TEST_F(PythonMethods, DivideBudgetsAsTheirTwinsInCxx) {
  const auto method = [](std::string_view name, std::string_view more, std::string_view rule) {
    return fmt::format(R"({{"name":"{}","keep":0.3{},"budget_rule":{}}})", name, more, rule);
  };
  const std::pair<const char*, const char*> rules[] = {
      {R"("py_pyramid")", R"("pyramid")"},
      {R"({"name":"py_pyramid","beta":2})", R"({"name":"pyramid","beta":2})"},
      {R"("py_heads")", R"("heads")"},
      {R"({"name":"py_heads","floor":0.6})", R"({"name":"heads","floor":0.6})"},
      {R"("py_global")", R"("global")"}};
  for (const auto& [own, twin] : rules) {
    for (const auto& [name, more] :
         {std::pair{"knorm", ""}, std::pair{"snapkv", R"(,"window":8)"},
          std::pair{"adakv", R"(,"scorer":{"name":"keydiff"})"}, std::pair{"py_knorm", R"(,"decode_interval":4)"}}) {
      EXPECT_EQ(kept(method(name, more, own)), kept(method(name, more, twin))) << name << more << " under " << own;
    }
  }
}

TEST_F(PythonMethods, BudgetRulesSayWhatIsWrong) {
  const std::map<std::string, std::string> said = {
      {"made", "ValueError: made wrong (line "},
      {"shape", "divide() returned [2], expected [layers, kv_heads], here [1, 2]"},
      {"part", "budget rule bad_rule: layer 0, kv head 1: found a budget of 7.5, expected a whole number of entries"},
      {"none", "found a budget of 0, expected a whole number of entries, at least 1"},
      {"raise", "NameError: name 'undefined' is not defined (line "}};
  const auto under = [](const std::string& rule) {
    return inspect(fmt::format(R"({{"name":"knorm","keep":0.3,"budget_rule":{}}})", rule));
  };
  for (const auto& [how, words] : said) {
    const Finished finished = under(fmt::format(R"({{"name":"bad_rule","how":"{}"}})", how));
    EXPECT_EQ(finished.code, 2) << how;
    EXPECT_TRUE(contains(finished.err, words)) << how << ": " << finished.err;
  }
  EXPECT_EQ(under(R"("bad_rule")").code, 0);
  expect_refused(under(R"("py_head")"), "did you mean \"py_heads\"");
  expect_refused(under(R"({"name":"py_pyramid","beta":0})"), "beta: found 0");
  const Finished help = run_kvarena({"--plugin", kScorers, "methods", "knorm"});
  EXPECT_TRUE(contains(help.out, "py_pyramid: Fewer entries the deeper the layer.")) << help.out;
  EXPECT_TRUE(contains(help.out, "the last layer gets 1/beta of the mean")) << help.out;
}

TEST_F(PythonMethods, ShowTheirParametersToReaders) {
  const ScratchFolder scratch;
  const Finished text = run_kvarena({"--plugin", kScorers, "methods", "py_snapkv"});
  const Finished pages = run_kvarena({"--plugin", kScorers, "methods", "--pages", (scratch / "pages").string()});
  EXPECT_EQ(pages.code, 0) << pages.err;
  std::ifstream file(scratch / "pages" / "compression.md");
  std::string page((std::istreambuf_iterator<char>(file)), {});
  page = page.substr(std::min(page.size(), page.find("`py_snapkv`: ")));
  for (const std::string& shown : {flowing(text.out), flowing(page.substr(0, page.find("\n## ")))}) {
    for (const char* words : {"an integer at least 1, default 64", "queries that vote",
                              "an integer at least 1 and at most 99, default 5", "one of \"avg\", \"max\""}) {
      EXPECT_TRUE(contains(shown, words)) << words << "\n" << shown;
    }
  }
  const Finished schema = run_kvarena({"--plugin", kScorers, "schema"});
  const json all = json::parse(schema.out, nullptr, false);
  const json own = all.value("/$defs/method.py_snapkv/properties"_json_pointer, json::object());
  EXPECT_EQ(own.value("/window/minimum"_json_pointer, 0), 1) << own;
  EXPECT_EQ(own.value("/window/description"_json_pointer, ""), "queries that vote") << own;
  EXPECT_EQ(own.value("/kernel/maximum"_json_pointer, 0), 99) << own;
  EXPECT_EQ(own.value("/pool/enum"_json_pointer, json()), json({"avg", "max"})) << own;
}

TEST_F(PythonMethods, ShowTheirParameters) {
  const Finished finished = run_kvarena({"--plugin", kScorers, "methods", "py_snapkv", "--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json method = json::parse(finished.out);
  EXPECT_EQ(method.at("summary"), "Keeps what the last queries of the prompt attend to.");
  json found;
  for (const json& parameter : method.at("parameters")) found[parameter.at("name").get<std::string>()] = parameter;
  EXPECT_EQ(found.at("window").at("default"), 64);
  EXPECT_EQ(found.at("window").at("min"), 1);
  EXPECT_EQ(found.at("window").at("doc"), "queries that vote");
  EXPECT_EQ(found.at("kernel").at("max"), 99);
  EXPECT_EQ(found.at("pool").at("choices"), json({"avg", "max"}));
  EXPECT_TRUE(found.contains("keep")) << "the framework's";
}

TEST_F(PythonMethods, SettingsAreChecked) {
  expect_refused(inspect("py_snapkv:keep=0.3,window=0"), "window: found 0");
  expect_refused(inspect("py_snapkv:keep=0.3,pool=mean"), "pool: found \"mean\"");
  expect_refused(inspect("py_snapkv:keep=0.3,windw=8"), "did you mean \"window\"");
  expect_refused(inspect("py_snapkv:keep=0.3,kernel=4"), "ValueError: kernel is even (line ");
}

struct Fault {
  const char* how;
  const char* said;
};

class PythonFaults : public PythonMethods, public ::testing::WithParamInterface<Fault> {};

TEST_P(PythonFaults, AreSaidInASentence) {
  const Finished finished = inspect(std::string("misbehaving:keep=0.3,how=") + GetParam().how);
  EXPECT_EQ(finished.code, 2);
  EXPECT_TRUE(contains(finished.err, GetParam().said)) << finished.err;
  EXPECT_FALSE(contains(finished.err, "should not happen")) << finished.err;
}

INSTANTIATE_TEST_SUITE_P(
    All, PythonFaults,
    ::testing::Values(Fault{"raise", "NameError: name 'undefined' is not defined (line "},
                      Fault{"shape", "score() returned [2, 149], expected [kv_heads, n], here [2, 150]"},
                      Fault{"nan", "a score that is not a number"},
                      Fault{"exit", "its Python process ended with exit code 3"},
                      Fault{"kill", "its Python process ended by signal 9 (Killed)"},
                      Fault{"undeclared",
                            "layer.prompt_attention where the scorer does not say `prompt_attention = True`"},
                      Fault{"list", "score() returned list, expected [kv_heads, n]"},
                      Fault{"import", "ModuleNotFoundError: No module named 'nowhere' (line "}),
    [](const auto& info) { return std::string(info.param.how); });

/// Scorers of kvpress, where it is installed.
class Presses : public PythonMethods {
 protected:
  void SetUp() override {
    if (std::system("${KVARENA_PYTHON:-python3} -c 'import kvpress' >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "Python has no kvpress: pip install kvpress==0.5.5, and KVARENA_PYTHON names that Python";
    }
  }

  static std::string press(const std::string& text, const char* more = "") {
    return fmt::format(R"({{"name":"kvpress","keep":0.3,"press":"{}"{}}})", text, more);
  }
};

TEST_F(Presses, KeepWhatOurMethodsKeep) {
  const std::map<std::string, std::string> twins = {
      {"KnormPress()", "knorm:keep=0.3"},
      {"KeyDiffPress()", "keydiff:keep=0.3"},
      {"SnapKVPress(window_size=8)", "snapkv:keep=0.3,window=8"},
      {"SnapKVPress(window_size=8, kernel_size=3)", "snapkv:keep=0.3,window=8,kernel=3"},
      {"TOVAPress()", "tova:keep=0.3,keep_newest=true"},
      {"ExpectedAttentionPress()", "expected_attention:keep=0.3"},
      {"StreamingLLMPress()", "streaming_llm:keep=0.3"},
      {"LagKVPress(n_sink=4, lag_size=16)", "lagkv:keep=0.3,lag=16"},
      {"ObservedAttentionPress()", "h2o:keep=0.3,normalise=visible,recent_share=0"},
      {"CriticalKVPress(KnormPress())", R"({"name":"criticalkv","keep":0.3,"scorer":"knorm"})"}};
  for (const auto& [text, method] : twins) EXPECT_EQ(kept(press(text)), kept(method)) << text;
  const std::string pyramid = "PyramidKVPress(window_size=8, beta=4)";
  const std::string divided = fmt::format(R"(,"budget_rule":{{"name":"kvpress_layers","press":"{}"}})", pyramid);
  EXPECT_EQ(kept(press(pyramid, divided.c_str())),
            kept(R"({"name":"pyramidkv","keep":0.3,"scorer":{"name":"snapkv","window":8},
                     "budget_rule":{"name":"pyramid","beta":4}})"));
}

/// Each class of kvpress that scores, as a config writes it.
TEST_F(Presses, EveryOneThatScoresIsRunOrSaysWhatItLacks) {
  const std::string weights = "press.py: found ";  // of another model, which are on the hub
  const std::map<std::string, std::string> said = {{"CapPress()", ""},
                                                   {"CompactorPress()", ""},
                                                   {"CriticalKVPress(KnormPress())", ""},
                                                   {"CURPress()", ""},
                                                   {"ExpectedAttentionPress()", ""},
                                                   {"ExpectedAttentionStatsPress()", weights},
                                                   {"KeyDiffPress()", ""},
                                                   {"KnormPress()", ""},
                                                   {"KVzapPress()", weights},
                                                   {"LagKVPress()", ""},
                                                   {"LeverageScorePress()", ""},
                                                   {"NonCausalAttnPress()", ""},
                                                   {"ObservedAttentionPress()", ""},
                                                   {"PyramidKVPress()", ""},
                                                   {"QFilterPress()", weights},
                                                   {"RandomPress()", ""},
                                                   {"SnapKVPress()", ""},
                                                   {"StreamingLLMPress()", ""},
                                                   {"TOVAPress()", ""}};
  std::string names;
  for (const auto& [text, words] : said) {
    names += text.substr(0, text.find('(')) + " ";
    const Finished finished = inspect(press(text));
    EXPECT_EQ(finished.code, words.empty() ? 0 : 2) << text << ": " << finished.err;
    EXPECT_TRUE(contains(finished.err, words)) << text << ": " << finished.err;
    EXPECT_FALSE(contains(finished.err, "problems")) << finished.err;
  }
  const std::string same = fmt::format(
      "${{KVARENA_PYTHON:-python3}} -c \"import kvpress as k; assert set('{}'.split()) == {{n for n, c in "
      "vars(k).items() "
      "if isinstance(c, type) and issubclass(c, k.ScorerPress)}} - {{'ScorerPress'}}\"",
      names);
  EXPECT_EQ(std::system(same.c_str()), 0) << "kvpress has other presses that score";
}

TEST_F(Presses, WhatIsNoScoreIsRefused) {
  expect_refused(inspect(press("NoPress()")), "press NoPress: kvpress has none of that name");
  const Finished no_score = inspect(press("ThinKPress()"));
  EXPECT_EQ(no_score.code, 2);
  EXPECT_TRUE(contains(no_score.err, "found no ScorerPress")) << no_score.err;
  expect_refused(inspect(press("KnormPress(ratio=1)")), "unexpected keyword argument 'ratio'");
  const Finished other = inspect("kvpress:keep=0.3,press=\"KnormPress()\",model=none");
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(contains(other.err, "none")) << other.err;
}

/// Cells of a run with the tiny model, by method.
std::map<std::string, results::CellRow> cells_of(const std::filesystem::path& database) {
  std::map<std::string, results::CellRow> cells;
  const results::ResultsReader reader(database);
  for (results::CellRow& row : reader.cells("python")) cells.try_emplace(row.cell.method, row);
  return cells;
}

/// A config for it, beside which lies what it runs with.
json config_for(const TinyModelFolder& model, const json& methods) {
  return {{"name", "python"},
          {"models", {{{"name", "tiny"}, {"path", model.path()}, {"dtype", "f32"}, {"template", "none"}}}},
          {"engine", {{"max_new_tokens", 4}, {"noise_floor", 0}}},
          {"workloads", {{{"name", "needle"}, {"words", {60}}, {"samples", 2}}}},
          {"methods", methods},
          {"output", {{"database", "run.db"}}}};
}

TEST_F(PythonMethods, AFaultCostsOneCell) {
  const std::map<std::string, std::string> faults = {
      {"kill", "its Python process ended by signal 9 (Killed)"},
      {"raise", "NameError: name 'undefined' is not defined (line "},
      {"shape", "score() returned [2, "},
      {"nan", "a score that is not a number"},
      {"import", "ModuleNotFoundError: No module named 'nowhere' (line "},
      {"hang", "it took longer than the 5 s that a sample may take"}};
  const TinyModelFolder model(2048);
  const ScratchFolder scratch;
  json methods = {{{"name", "full"}},
                  {{"name", "misbehaving"}, {"keep", 0.5}, {"label", "sound"}},
                  {{"name", "py_knorm"}, {"keep", 0.5}}};
  for (const auto& [how, said] : faults) {
    methods.push_back({{"name", "misbehaving"}, {"keep", 0.5}, {"how", how}, {"label", how}});
  }
  std::ofstream(scratch / "config.json") << config_for(model, methods);
  const Finished finished = run_kvarena({"--plugin", kScorers, "run", "config.json", "--quiet", "--time-limit", "5"},
                                        {.folder = scratch.path()});
  EXPECT_EQ(finished.code, 1) << finished.err;
  auto cells = cells_of(scratch / "run.db");
  for (const char* sound : {"full", "sound", "py_knorm keep=0.5"}) {
    EXPECT_EQ(cells.at(sound).state, results::CellState::done) << sound;
  }
  for (const auto& [how, said] : faults) {
    const results::CellRow& cell = cells.at(how);
    EXPECT_EQ(cell.state, results::CellState::failed) << how;
    EXPECT_TRUE(contains(cell.reason, said)) << how << ": " << cell.reason;
    EXPECT_FALSE(contains(cell.reason, "\n")) << how << ": " << cell.reason;
  }
  const std::string& log = cells.at("raise").failure_log;
  EXPECT_TRUE(log.starts_with("Traceback, its last lines:\n")) << log;
  EXPECT_TRUE(contains(log, "return scores / undefined")) << log;
  EXPECT_TRUE(log.ends_with("NameError: name 'undefined' is not defined")) << log;
  EXPECT_EQ(std::ranges::count(log, '\n'), 5) << log;
  EXPECT_TRUE(contains(cells.at("import").failure_log, "import nowhere"));
}

TEST(PythonPatience, EndsWithASentence) {
  const ScratchFolder scratch;
  const std::string file = (scratch / "endless.py").string();
  std::ofstream(file) << "while True: pass\n";
  const RunSetup soon{.environment = {{"KVARENA_PYTHON_SECONDS", "2"}}};
  const std::string said = "an import or a constructor that has not returned after 2 s";
  expect_refused(run_kvarena({"--plugin", file, "methods"}, soon), file + ": found " + said);
  std::ofstream(file)
      << "import kvarena\nclass Endless(kvarena.Scorer):\n  def __init__(self):\n    while True: pass\n";
  expect_refused(run_kvarena({"--plugin", file, "inspect", "--prompt", "a", "--method", "endless:keep=0.5"}, soon),
                 said);
  const RunSetup never{.environment = {{"KVARENA_PYTHON_SECONDS", "soon"}}};
  expect_refused(run_kvarena({"--plugin", file, "methods"}, never), "KVARENA_PYTHON_SECONDS: found soon");
}

/// Answers and KL of cells with the real model, where methods in Python lie beside those in C++.
class OnTheDefaultModel : public PythonMethods {
 protected:
  void SetUp() override {
    PythonMethods::SetUp();
    if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  }

  void run(const json& methods) {
    json config = config_for(model(), methods);
    config["models"] = {"smollm2-135m"};
    config["workloads"] = {{{"name", "needle"}, {"words", {100}}, {"samples", 2}}};
    std::ofstream(scratch_ / "config.json") << config;
    const Finished finished =
        run_kvarena({"--plugin", kScorers, "run", "config.json", "--quiet"}, {.folder = scratch_.path()});
    ASSERT_EQ(finished.code, 0) << finished.err;
    const results::ResultsReader reader(scratch_ / "run.db");
    for (const auto& [method, row] : cells_of(scratch_ / "run.db")) {
      answers_[method] = reader.predictions(row.cell.cell_id);
      EXPECT_EQ(answers_[method].size(), 2U) << method;
      for (const auto& value : reader.values(row.cell.cell_id, "kl_nats", results::Clock::none)) {
        nats_[method].push_back(value.value);
      }
    }
  }

  void expect_alike(const std::string& own, const std::string& twin) const {
    EXPECT_EQ(answers_.at(own), answers_.at(twin)) << own;
    EXPECT_EQ(nats_.at(own), nats_.at(twin)) << own;
    EXPECT_GT(nats_.at(own).at(0), 0) << own;
  }

  ScratchFolder scratch_;
  std::map<std::string, std::map<std::string, std::string>> answers_;
  std::map<std::string, std::vector<double>> nats_;
};

TEST_F(OnTheDefaultModel, ScorersAreTheirTwins) {
  const std::string names[] = {"knorm", "keydiff", "snapkv", "expected_attention"};
  std::string prompt;
  for (int i = 0; i < 12; ++i) prompt += fmt::format("The grass is green and the sky is blue, says line {}. ", i);
  json methods = {{{"name", "full"}}};
  for (const std::string& name : names) {
    json positions[2];
    for (const bool python : {false, true}) {
      const std::string own = (python ? "py_" : "") + name;
      methods.push_back({{"name", own}, {"keep", 0.5}, {"label", own}});
      const Finished finished = run_kvarena({"--plugin", kScorers, "inspect", "--model", "smollm2-135m", "--prompt",
                                             prompt, "--method", own + ":keep=0.5"});
      ASSERT_EQ(finished.code, 0) << finished.err;
      const json found = json::parse(finished.out);
      for (const json& layer : found.at("layers")) positions[python].push_back(layer.at("positions"));
    }
    EXPECT_EQ(positions[0].size(), 30U);
    EXPECT_EQ(positions[1], positions[0]) << name;
  }
  run(methods);
  for (const std::string& name : names) expect_alike("py_" + name, name);
}

TEST_F(OnTheDefaultModel, RetrieversAreTheirTwinsAndDraftsAreVerified) {
  json methods = {{{"name", "full"}},
                  {{"name", "vericache"}, {"drafter", {{"name", "py_knorm"}, {"keep", 0.5}}}, {"label", "drafts"}}};
  for (const std::string gqa : {"mean", "none"}) {
    for (const std::string name : {"ideal_topk", "py_ideal_topk"}) {
      methods.push_back({{"name", name}, {"keep", 0.1}, {"gqa", gqa}, {"label", name + gqa}});
    }
  }
  run(methods);
  for (const std::string gqa : {"mean", "none"}) expect_alike("py_ideal_topk" + gqa, "ideal_topk" + gqa);
  EXPECT_EQ(answers_.at("drafts"), answers_.at("full"));
}

struct File {
  const char* name;
  const char* text;
  const char* said;
};

class PythonFiles : public ::testing::TestWithParam<File> {};

TEST_P(PythonFiles, AreRefusedWithPythonsReason) {
  const ScratchFolder scratch;
  const std::string file = (scratch / (std::string(GetParam().name) + ".py")).string();
  std::ofstream(file) << GetParam().text;
  const Finished finished = run_kvarena({"--plugin", file, "methods"});
  expect_refused(finished, GetParam().said);
  EXPECT_TRUE(contains(finished.err, file)) << finished.err;
}

INSTANTIATE_TEST_SUITE_P(
    All, PythonFiles,
    ::testing::Values(File{"empty", "", "no method in it; expected a function with @kvarena.scorer"},
                      File{"syntax", "def f(:\n", "SyntaxError: invalid syntax (line 1)"},
                      File{"import_error", "import nowhere\n",
                           "ModuleNotFoundError: No module named 'nowhere' (line 1: import nowhere)"},
                      File{"leaves", "import os\nos._exit(5)\n", "its Python process ended with exit code 5"},
                      File{"no_default", "import kvarena\n@kvarena.scorer\ndef f(layer, *, x: int): pass\n",
                           "parameter x of f has no default"},
                      File{"odd_type", "import kvarena\n@kvarena.scorer\ndef f(layer, *, x: list = []): pass\n",
                           "parameter x of f is a list; expected bool, int, float or str"},
                      File{"odd_need", "import kvarena\n@kvarena.scorer(windw=3)\ndef f(layer): pass\n",
                           "kvarena.scorer has no windw"},
                      File{"twice",
                           "import kvarena\n@kvarena.scorer\ndef f(layer): pass\n"
                           "@kvarena.budget_rule(name='f')\ndef g(division): pass\n",
                           "ValueError: two methods named f"},
                      File{"taken_rule", "import kvarena\n@kvarena.budget_rule\ndef heads(division): pass\n",
                           "a budget rule \"heads\", a name that is taken"},
                      File{"taken", "import kvarena\n@kvarena.scorer\ndef snapkv(layer): pass\n",
                           "a method \"snapkv\", a name that is taken"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Python, ThatIsNotThereIsNamed) {
  const RunSetup setup{.environment = {{"KVARENA_PYTHON", "/nowhere/python"}}};
  expect_refused(run_kvarena({"--plugin", kScorers, "methods"}, setup), "no program \"/nowhere/python\"");
}

}  // namespace
}  // namespace kvarena::testing
