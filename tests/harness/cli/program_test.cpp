// The program's manners: help, suggestions, streams, exit codes.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

TEST(Program, HelpSaysWhatItIsAndShowsAnExampleEverywhere) {
  const std::vector<std::vector<std::string>> commands{{},
                                                       {"run"},
                                                       {"report"},
                                                       {"compare"},
                                                       {"inspect"},
                                                       {"fit"},
                                                       {"score"},
                                                       {"methods"},
                                                       {"workloads"},
                                                       {"metrics"},
                                                       {"schema"},
                                                       {"doctor"},
                                                       {"estimate"},
                                                       {"reuse"},
                                                       {"questions"},
                                                       {"model"},
                                                       {"new-method"},
                                                       {"completion"},
                                                       {"model", "tokenize"},
                                                       {"model", "logits"},
                                                       {"model", "generate"}};
  for (auto words : commands) {
    words.emplace_back("--help");
    const Finished help = run_kvarena(words);
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_TRUE(help.out.starts_with("kvarena")) << "what it is\n" << help.out;
    EXPECT_LT(help.out.find("\nExample"), help.out.find("\nUsage\n")) << help.out;
    EXPECT_TRUE(contains(help.out, "\nUsage\n"));
    EXPECT_FALSE(contains(help.out, "\033["));  // not a terminal
  }
}

TEST(Program, WithoutACommandItShowsHelpAndFails) {
  const Finished finished = run_kvarena({});
  EXPECT_EQ(finished.code, 2);
  EXPECT_TRUE(contains(finished.out, "Measure\n")) << finished.out;
}

TEST(Program, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(run_kvarena({"help"}).out, run_kvarena({"--help"}).out);
  EXPECT_EQ(run_kvarena({"help", "model", "logits"}).out, run_kvarena({"model", "logits", "--help"}).out);
  EXPECT_EQ(run_kvarena({"version"}).out, run_kvarena({"--version"}).out);
  EXPECT_EQ(run_kvarena({"-v"}).out, run_kvarena({"--version"}).out);
  expect_refused(run_kvarena({"help", "rnu"}), "there is no command \"rnu\"; did you mean \"run\"?");
}

TEST(Program, EveryCommandThatPeopleSeeStandsUnderOneHeading) {
  const std::string help = run_kvarena({"--help"}).out;
  EXPECT_FALSE(contains(help, "\n  worker "));
  for (const char* part : {"Measure\n  run ", "Reproduce\n  papers ", "Extend\n  new-method "}) {
    EXPECT_TRUE(contains(help, part)) << help;
  }
}

/// Words that a shell offers after typing `words`, one line each.
std::string completed(const std::string& shell, const std::string& words) {
  const ScratchFolder scratch;
  const std::string script = (scratch / "completion").string();
  std::ofstream(script) << run_kvarena({"completion", shell}).out;
  const std::string line = shell == "fish"
                               ? fmt::format("source {}; complete -C 'kvarena {}'", script, words)
                               : fmt::format(
                                     "source {}; COMP_WORDS=(kvarena {}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
                                     "_kvarena; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                                     script, words);
  const std::string out = (scratch / "out").string();
  std::ofstream(scratch / "line") << line;
  EXPECT_EQ(std::system(fmt::format("{} {} > {}", shell, (scratch / "line").string(), out).c_str()), 0) << line;
  std::ifstream file(out);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Program, ShellsCompleteCommandsOptionsAndNames) {
  for (const std::string shell : {"bash", "fish"}) {
    if (std::system(fmt::format("command -v {} > /dev/null", shell).c_str()) != 0) continue;
    EXPECT_TRUE(contains(completed(shell, "rep"), "report")) << shell;
    EXPECT_TRUE(contains(completed(shell, "model log"), "logits")) << shell;
    EXPECT_TRUE(contains(completed(shell, "run --dry"), "--dry-run")) << shell;
    EXPECT_TRUE(contains(completed(shell, "methods snap"), "snapkv")) << shell;
    EXPECT_TRUE(contains(completed(shell, "methods --family retr"), "retrieval")) << shell;
    EXPECT_FALSE(contains(completed(shell, "work"), "worker")) << shell;
  }
}

TEST(Program, EachShellReadsItsScript) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    if (std::system(fmt::format("command -v {} > /dev/null", shell).c_str()) != 0) continue;
    const ScratchFolder scratch;
    std::ofstream(scratch / "script") << run_kvarena({"completion", shell}).out;
    EXPECT_EQ(std::system(fmt::format("{} -n {}", shell, (scratch / "script").string()).c_str()), 0) << shell;
  }
}

TEST(Program, SuggestsTheNearestCommandAndOption) {
  expect_refused(run_kvarena({"metods"}), "there is no command \"metods\"; did you mean \"methods\"?");
  expect_refused(run_kvarena({"methods", "--jsn"}), "methods: there is no option \"--jsn\"; did you mean \"--json\"?");
  expect_refused(run_kvarena({"methods", "--famly=retrieval"}), "did you mean \"--family\"?");
  expect_refused(run_kvarena({"methods", "full", "more"}), "methods: one word too many: \"more\"");
}

TEST(Program, NamesWhatIsMissingOrWrong) {
  expect_refused(run_kvarena({"methods", "--family"}), "--family: found nothing, expected a value");
  expect_refused(run_kvarena({"methods", "--family", "--json"}), "--family: found the option --json, expected a value");
  expect_refused(run_kvarena({"methods", "--family", "retreival"}), "did you mean \"retrieval\"?");
  expect_refused(run_kvarena({"methods", "snapkvv"}), "no method \"snapkvv\"; did you mean \"snapkv\"?");
}

TEST(Program, RefusesToFitWhatHasNoWeights) {
  const Finished refused = run_kvarena({"fit", "snapkv"});
  expect_refused(refused, "METHOD: found \"snapkv\", which has no weights to fit");
  EXPECT_TRUE(contains(refused.err, "kvzap"));
  expect_refused(run_kvarena({"fit", "kvzap", "--samples", "0"}), "--samples: found 0");
}

TEST(Program, MethodsAreListedByFamilyAndAsJson) {
  const Finished list = run_kvarena({"methods"});
  EXPECT_EQ(list.code, 0);
  EXPECT_LT(list.out.find("full"), list.out.find("compression"));
  EXPECT_LT(list.out.find("compression"), list.out.find("snapkv"));
  const json all = json::parse(run_kvarena({"methods", "--json"}).out);
  EXPECT_GE(all.size(), 4U);
  for (const json& method : all) {
    EXPECT_TRUE(contains(list.out, method.at("name").get<std::string>()));
    EXPECT_FALSE(method.at("summary").get<std::string>().empty());
  }
  const json verification = json::parse(run_kvarena({"methods", "--family", "verification", "--json"}).out);
  for (const json& method : verification) EXPECT_EQ(method.at("family"), "verification");
}

TEST(Program, AMethodIsDescribedWithItsSettings) {
  const Finished text = run_kvarena({"methods", "snapkv"});
  EXPECT_EQ(text.code, 0);
  for (const char* part : {"SnapKV", "arXiv:2404.14469", "window", "default 64", "at least 1", "snapkv:keep=0.25"}) {
    EXPECT_TRUE(contains(text.out, part)) << part << "\n" << text.out;
  }
  const json described = json::parse(run_kvarena({"methods", "snapkv", "--json"}).out);
  EXPECT_EQ(described.at("name"), "snapkv");
  bool found = false;
  for (const json& parameter : described.at("parameters")) {
    if (parameter.at("name") != "window") continue;
    found = true;
    EXPECT_EQ(parameter.at("type"), "integer");
    EXPECT_EQ(parameter.at("default"), 64);
    EXPECT_EQ(parameter.at("min"), 1);
  }
  EXPECT_TRUE(found);
}

TEST(Program, WorkloadsAndMetricsAreListedAndDescribed) {
  for (const std::string what : {"workloads", "metrics"}) {
    const Finished list = run_kvarena({what});
    EXPECT_EQ(list.code, 0);
    const json all = json::parse(run_kvarena({what, "--json"}).out);
    ASSERT_GE(all.size(), 5U) << what;
    for (const json& entry : all) EXPECT_TRUE(contains(list.out, entry.at("name").get<std::string>())) << entry;
    const Finished one = run_kvarena({what, all.front().at("name").get<std::string>()});
    EXPECT_EQ(one.code, 0);
    EXPECT_TRUE(contains(one.out, all.front().at("name").get<std::string>()));
  }
  expect_refused(run_kvarena({"metrics", "qa_f2"}), "did you mean \"qa_f1\"?");
  expect_refused(run_kvarena({"workloads", "longbench/qaspr"}), "did you mean \"longbench/qasper\"?");
}

TEST(Program, SchemaKnowsEveryMethod) {
  const json schema = json::parse(run_kvarena({"schema"}).out);
  const std::string text = schema.dump();
  for (const json& method : json::parse(run_kvarena({"methods", "--json"}).out)) {
    EXPECT_TRUE(contains(text, method.at("name").dump())) << method.at("name");
  }
}

TEST(Program, VersionSaysMoreThanANumber) {
  const Finished version = run_kvarena({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("kvarena ", 0), 0U) << version.out;
  EXPECT_TRUE(contains(version.out, "libtorch")) << version.out;
  EXPECT_FALSE(contains(version.out, "()")) << "no revision: " << version.out;
}

TEST(Program, FullOutputDiskIsAnError) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full here";
  const int code = std::system(KVARENA_BINARY_DIR "/bin/kvarena methods > /dev/full 2> /dev/null");
  EXPECT_NE(code, 0);
}

// Adding a component is one file; the schema that editors read of it is made by one command, which this asks for.
TEST(Program, TheSchemaInTheTreeIsWhatTheProgramSays) {
  const Finished schema = run_kvarena({"schema"});
  ASSERT_EQ(schema.code, 0) << schema.err;
  std::ifstream file(KVARENA_SOURCE_DIR "/configs/schema.json");
  const std::string stored{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(schema.out == stored) << "configs/schema.json is older than the components; renew it:\n  "
                                       "build/release/bin/kvarena schema > configs/schema.json";
}

}  // namespace
}  // namespace kvarena::testing
