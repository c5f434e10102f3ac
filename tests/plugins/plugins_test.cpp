// Shared libraries with methods: the good ones join the registry, the others are refused in a sentence.

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

std::string library(const std::string& name) {
  return KVARENA_BINARY_DIR "/plugins/lib" + name + "_plugin" KVARENA_PLUGIN_SUFFIX;
}

TEST(Plugins, JoinTheRegistryWhereverTheWordStands) {
  const std::string path = library("breaking");
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"--plugin", path, "methods", "breaking", "--json"},
                                             {"methods", "breaking", "--json", "--plugin", path},
                                             {"methods", "--plugin=" + path, "breaking", "--json"}}) {
    const Finished finished = run_kvarena(words);
    ASSERT_EQ(finished.code, 0) << finished.err;
    const json method = json::parse(finished.out);
    EXPECT_EQ(method.at("title"), "Breaking");
    EXPECT_TRUE(contains(finished.out, "\"every\"")) << finished.out;
  }
  const RunSetup by_environment{.environment = {{"KVARENA_PLUGINS", path + ":" + library("good")}}};
  EXPECT_EQ(run_kvarena({"methods", "idle"}, by_environment).code, 0);
  EXPECT_EQ(run_kvarena({"methods", "steady"}, by_environment).code, 0);
  EXPECT_EQ(run_kvarena({"--plugin", path, "methods", "steady"}, by_environment).code, 0) << "named twice, loaded once";
  EXPECT_EQ(run_kvarena({"methods", "steady"}).code, 2) << "not there without the plugin";
}

TEST(Plugins, AreInTheSchemaAndInTheHelp) {
  const Finished schema = run_kvarena({"--plugin", library("breaking"), "schema"});
  EXPECT_TRUE(contains(schema.out, "method.breaking"));
  EXPECT_TRUE(contains(run_kvarena({"--help"}).out, "--plugin FILE"));
}

struct Refusal {
  const char* name;
  const char* message;
};

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, InOneSentenceThatNamesTheFile) {
  const std::string path = library(GetParam().name);
  ASSERT_TRUE(std::filesystem::exists(path)) << path;
  const Finished finished = run_kvarena({"--plugin", path, "methods"});
  expect_refused(finished, GetParam().message);
  EXPECT_TRUE(contains(finished.err, path)) << finished.err;
}

INSTANTIATE_TEST_SUITE_P(
    Plugins, Refused,
    ::testing::Values(
        Refusal{"throws_while_loaded", "a library that throws while it is loaded: thrown while"},
        Refusal{"throwing_constructor", "method \"idle\": found that it throws while it is made: no licence found"},
        Refusal{"leaving_constructor", "ends the program while it is loaded, by exit code 0"},
        Refusal{"endless_constructor", "a library that is not loaded after 10 s, it wrote: and so on ..."},
        Refusal{"crashing_parameters", "about to crash"}, Refusal{"bad_api", "a plugin for version 2 of the interface"},
        Refusal{"bad_build", "a plugin built against other headers"},
        Refusal{"bad_mark", "a file without the mark of a plugin"}, Refusal{"bad_symbol", "nobody_defines_this"},
        Refusal{"bad_empty", "no method in it"}, Refusal{"taken", "a method \"full\", a name that is taken"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Plugins, AChildThatOutlivesTheTrialIsNotWaitedFor) {
  const auto begun = std::chrono::steady_clock::now();
  const Finished finished = run_kvarena({"--plugin", library("leaves_a_child"), "methods", "full"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(12)) << "the child lives for 15 s";
}

TEST(Plugins, TwoThatWantOneNameAreRefused) {
  const Finished finished =
      run_kvarena({"--plugin", library("good"), "--plugin", library("throwing_constructor"), "methods"});
  expect_refused(finished, "a method \"idle\", a name that is taken");
}

TEST(Plugins, WhatIsNoLibraryIsRefused) {
  const ScratchFolder scratch;
  std::ofstream(scratch / "notes.so") << "no library";
  std::ofstream(scratch / "empty.so");
  expect_refused(run_kvarena({"--plugin", (scratch / "notes.so").string(), "methods"}), "without the mark");
  expect_refused(run_kvarena({"--plugin", (scratch / "empty.so").string(), "methods"}), "without the mark");
  expect_refused(run_kvarena({"--plugin", (scratch / "none.so").string(), "methods"}), "no file");
  expect_refused(run_kvarena({"--plugin", scratch.path().string(), "methods"}), "no file");
  expect_refused(run_kvarena({"methods", "--plugin"}), "--plugin: found nothing");
}

}  // namespace
}  // namespace kvarena::testing
