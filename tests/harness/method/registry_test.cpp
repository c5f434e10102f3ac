#include "harness/method/registry.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using nlohmann::json;

TEST(MethodRegistry, LosesNoRegistrationOfAnyFile) {
  int64_t registrations = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(KVARENA_SOURCE_DIR "/methods")) {
    if (entry.path().extension() != ".cpp") continue;
    int64_t here = 0;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) here += line.starts_with("KVARENA_") ? 1 : 0;
    EXPECT_GE(here, 1) << entry.path() << " registers nothing";
    registrations += here;
  }
  EXPECT_EQ(static_cast<int64_t>(method_registry().size()), registrations);
}

TEST(MethodRegistry, EveryMethodSaysWhatItIs) {
  for (const MethodEntry& entry : method_registry()) {
    SCOPED_TRACE(entry.info.name);
    EXPECT_FALSE(entry.info.title.empty());
    EXPECT_TRUE(entry.info.summary.ends_with('.'));
    EXPECT_EQ(entry.info.paper.empty(), entry.family == Family::reference);
    for (const ParameterInfo& parameter : entry.parameters()) EXPECT_FALSE(parameter.doc.empty()) << parameter.name;
  }
}

TEST(MethodRegistry, AnUnknownNameGetsTheNearestOne) {
  const auto problems = check_method({{"name", "snap_kv"}}, "configs/a.json: methods[0]");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0],
            "configs/a.json: methods[0].name: found \"snap_kv\", expected a registered method; did you mean "
            "\"snapkv\"? `kvarena methods` lists all");
}

TEST(MethodRegistry, NestedMethodsAreCheckedWithTheirPath) {
  const json spec = {{"name", "vericache"}, {"drafter", {{"name", "snapkv"}, {"keep", 1.4}}}};
  const auto problems = check_method(spec, "m");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("m.drafter.keep: found 1.4"), std::string::npos) << problems[0];
}

TEST(MethodRegistry, AVerifierCannotDraftForAnother) {
  const json inner = {{"name", "vericache"}, {"drafter", {{"name", "full"}}}};
  EXPECT_EQ(check_method({{"name", "vericache"}, {"drafter", inner}}, "m").size(), 1U);
}

TEST(MethodRegistry, MakingWithBadSettingsThrowsAllProblems) {
  try {
    (void)make_method({{"name", "snapkv"}, {"keeep", 0.5}, {"window", 0}}, "m");
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("m.keeep: found an unknown key"), std::string::npos) << text;
    EXPECT_NE(text.find("m.window: found 0, expected an integer at least 1"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace kvarena
