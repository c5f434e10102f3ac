// kvarena workloads pull and check, with a program of the name curl that copies from a folder.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class Workloads : public ::testing::Test {
 protected:
  Workloads() {
    fs::create_directories(scratch_ / "bin");
    fs::create_directories(scratch_ / "web");
    fs::create_directories(scratch_ / "own data");
    // curl -L --create-dirs -o FILE URL
    const fs::path curl = scratch_ / "bin" / "curl";
    std::ofstream(curl) << "#!/bin/sh\nmkdir -p \"$(dirname \"$4\")\" && cp \"" << (scratch_ / "web").string()
                        << "/${5##*/}\" \"$4\"\n";
    fs::permissions(curl, fs::perms::owner_all);
  }

  [[nodiscard]] Finished kvarena(std::vector<std::string> words) const {
    words.insert(words.end(), {"--data", (scratch_ / "own data").string()});
    const std::string path = (scratch_ / "bin").string() + ":" + std::getenv("PATH");
    return run_kvarena(words, {.environment = {{"PATH", path}}});
  }

  /// A file of LongBench v2 with so many samples, as the source would give it.
  void publish(size_t samples) const {
    const fs::path made = fs::path(KVARENA_BINARY_DIR) / "samples" / "longbench-v2" / "data.json";
    const json row = json::parse(std::ifstream(made)).at(0);
    json rows = json::array();
    for (size_t i = 0; i < samples; ++i) {
      rows.push_back(row);
      rows.back()["_id"] = std::to_string(i);
    }
    std::ofstream(scratch_ / "web" / "data.json") << rows.dump();
  }

  [[nodiscard]] fs::path data(const std::string& file) const { return scratch_ / "own data" / file; }

  ScratchFolder scratch_;
};

TEST_F(Workloads, PullPutsAFileWhereItIsLookedFor) {
  publish(503);
  const Finished pulled = kvarena({"workloads", "pull", "longbench-v2"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_TRUE(contains(pulled.out, "longbench-v2: 503 samples, as many samples")) << pulled.out;
  EXPECT_TRUE(fs::exists(data("longbench-v2/data.json")));

  const json checked = json::parse(kvarena({"workloads", "check", "longbench-v2", "--json"}).out);
  ASSERT_EQ(checked.size(), 1U);
  EXPECT_EQ(checked[0]["state"], "as many samples");
  EXPECT_EQ(checked[0]["samples"], 503);

  fs::remove(scratch_ / "web" / "data.json");  // is there, so it is not fetched again
  const Finished again = kvarena({"workloads", "pull", "longbench-v2"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(contains(again.out, data("longbench-v2/data.json").string())) << again.out;
}

TEST_F(Workloads, PullKeepsNothingOfWhatDiffers) {
  publish(502);
  const Finished fewer = kvarena({"workloads", "pull", "longbench-v2"});
  EXPECT_EQ(fewer.code, 2);
  EXPECT_TRUE(contains(fewer.err, "502 samples, the official file has 503")) << fewer.err;
  std::ofstream(scratch_ / "web" / "test.jsonl") << R"({"question": "1 + 1?", "answer": "#### 2"})"
                                                 << "\n";
  const Finished other = kvarena({"workloads", "pull", "gsm8k"});
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(
      contains(other.err, "the official file has 3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"))
      << other.err;
  EXPECT_TRUE(fs::is_empty(scratch_ / "own data"));
}

TEST_F(Workloads, PullSaysWhichCommandFailed) {
  const Finished finished = kvarena({"workloads", "pull", "longbench-v2"});
  EXPECT_EQ(finished.code, 2);
  EXPECT_TRUE(contains(finished.err, "found exit code 1, expected 0")) << finished.err;
  EXPECT_TRUE(fs::is_empty(scratch_ / "own data"));
  expect_refused(kvarena({"workloads", "pull", "gsm9k"}), "did you mean \"gsm8k\"?");
}

TEST_F(Workloads, CheckTellsFilesApart) {
  fs::create_directories(data("gsm8k"));
  std::ofstream(data("gsm8k/test.jsonl")) << R"({"question": "1 + 1?", "answer": "#### 2"})"
                                          << "\n";
  const Finished finished = kvarena({"workloads", "check", "gsm8k", "needle", "longgenbench", "--json"});
  EXPECT_EQ(finished.code, 1);
  std::map<std::string, std::string> states;
  for (const json& row : json::parse(finished.out)) states[row["name"]] = row["state"];
  EXPECT_EQ(states["gsm8k"], "differs");
  EXPECT_EQ(states["gsm8k-long"], "differs") << "its examples are missing";
  EXPECT_EQ(states["needle"], "generated");
  EXPECT_EQ(states["longgenbench/short"], "missing");
  const json made =
      json::parse(run_kvarena({"workloads", "check", "gsm8k", "--json"},
                              {.environment = {{"KVARENA_HOME", data("none").string()}, {"KVARENA_DATA", ""}}})
                      .out);
  EXPECT_EQ(made[0]["state"], "project-made sample");
}

TEST_F(Workloads, FilesInHomeAreFoundBeforeSamples) {
  const fs::path home = data("home");
  fs::create_directories(home / "data" / "gsm8k");
  std::ofstream(home / "data" / "gsm8k" / "test.jsonl") << R"({"question": "1 + 1?", "answer": "#### 2"})"
                                                        << "\n";
  const RunSetup here{.environment = {{"KVARENA_HOME", home.string()}, {"KVARENA_DATA", ""}}};
  std::map<std::string, std::string> states;
  for (const json& row : json::parse(run_kvarena({"workloads", "--json"}, here).out))
    states[row["name"]] = row["status"];
  EXPECT_EQ(states["gsm8k"], "present");
  EXPECT_EQ(states["longbench-v2"], "project-made sample");
}

}  // namespace
}  // namespace kvarena::testing
