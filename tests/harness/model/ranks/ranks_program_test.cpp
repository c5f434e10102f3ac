// A model shared by several processes, through the program as a user runs it.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"
#include "tests/support/free_port.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The rank whose files lie below `folder`, once it is there.
std::optional<pid_t> rank_below(const fs::path& folder) {
  for (int look = 0; look < 600; ++look, std::this_thread::sleep_for(50ms)) {
    std::error_code gone;
    for (const auto& process : fs::directory_iterator("/proc", gone)) {
      pid_t pid = 0;
      const std::string name = process.path().filename().string();
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (error != std::errc{} || end != name.data() + name.size()) continue;
      const std::string words = bytes_of(process.path() / "cmdline");
      if (contains(words, "local-rank") && contains(words, folder.string())) return pid;
    }
  }
  return std::nullopt;
}

TEST(TensorParallel, LogitsOfTwoAndThreeProcessesAreThoseOfOne) {
  const TinyModelFolder tiny;
  const ScratchFolder scratch;
  std::string expected;
  for (const char* ranks : {"1", "2", "3"}) {
    const fs::path file = scratch / (std::string(ranks) + ".npy");
    const Finished finished =
        run_kvarena({"model", "logits", "--model", tiny.path(), "--ids", "5,17,200,33,8,17,200,91", "--all", "--output",
                     file.string(), "--tensor-parallel", ranks},
                    {.environment = {{"TMPDIR", scratch.path().string()}}});
    ASSERT_EQ(finished.code, 0) << finished.err;
    if (expected.empty()) expected = bytes_of(file);
    EXPECT_EQ(bytes_of(file), expected) << ranks;
    EXPECT_EQ(finished.err, "");
    fs::remove(file);
    EXPECT_TRUE(scratch.content().empty()) << "what ranks share is left behind";
  }
  EXPECT_FALSE(expected.empty());
}

TEST(TensorParallel, WhatAKilledRunLeftBehindIsRemovedByTheNext) {
  const TinyModelFolder tiny;
  const ScratchFolder scratch;
  for (const char* name : {"kvarena-ranks-killed", "kvarena-ranks-locked"}) fs::create_directory(scratch / name);
  std::ofstream(scratch / "kvarena-ranks-killed" / "meeting") << "x";
  const int locked = ::open((scratch / "kvarena-ranks-locked").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(locked, LOCK_EX), 0);
  for (const char* name : {"kvarena-ranks-killed", "kvarena-ranks-locked"}) {
    fs::last_write_time(scratch / name, fs::file_time_type::clock::now() - 1h);
  }
  const Finished finished =
      run_kvarena({"model", "logits", "--model", tiny.path(), "--ids", "5,17", "--tensor-parallel", "2"},
                  {.environment = {{"TMPDIR", scratch.path().string()}}});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(scratch.content(), std::vector<std::string>{"kvarena-ranks-locked"});
  ::close(locked);
  expect_refused(run_kvarena({"model", "logits", "--model", tiny.path(), "--ids", "5", "--tensor-parallel", "1000"}),
                 "1000 processes on this machine");
}

TEST(TensorParallel, GreedyTokensOfTheDefaultModelAreEqual) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  std::string expected;
  for (const char* ranks : {"1", "2"}) {
    const Finished finished = run_kvarena({"model", "generate", "--prompt", "The history of Rome begins", "--quiet",
                                           "--max-new-tokens", "64", "--tensor-parallel", ranks});
    ASSERT_EQ(finished.code, 0) << finished.err;
    if (expected.empty()) expected = finished.out;
    EXPECT_EQ(finished.out, expected);
  }
  EXPECT_GT(expected.size(), 100U);
}

TEST(TensorParallel, ARankThatIsKilledEndsTheRunWithItsName) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  std::optional<pid_t> rank;
  std::thread killer([&] {
    rank = rank_below(scratch.path());
    if (rank) ::kill(*rank, SIGKILL);
  });
  const Finished finished = run_kvarena({"model", "generate", "--prompt", "The history of Rome begins", "--quiet",
                                         "--max-new-tokens", "8000", "--tensor-parallel", "2"},
                                        {.environment = {{"TMPDIR", scratch.path().string()}}});
  killer.join();
  ASSERT_TRUE(rank);
  EXPECT_EQ(finished.code, 2);
  EXPECT_TRUE(contains(finished.err, "rank 1 of 2 was ended by signal 9 (Killed)")) << finished.err;
}

TEST(TensorParallel, ARankWithoutADriverEndsToo) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  std::optional<pid_t> rank;
  std::thread killer([&] {
    rank = rank_below(scratch.path());
    if (!rank) return;
    std::ifstream status("/proc/" + std::to_string(*rank) + "/stat");
    std::string word;
    pid_t driver = 0;
    status >> word >> word >> word >> driver;
    ::kill(driver, SIGKILL);
  });
  const Finished finished = run_kvarena({"model", "generate", "--prompt", "The history of Rome begins", "--quiet",
                                         "--max-new-tokens", "8000", "--tensor-parallel", "2"},
                                        {.environment = {{"TMPDIR", scratch.path().string()}}});
  killer.join();
  ASSERT_TRUE(rank);
  EXPECT_EQ(finished.code, 128 + SIGKILL);
  for (int look = 0; look < 200 && ::kill(*rank, 0) == 0; ++look) std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(fs::exists("/proc/" + std::to_string(*rank) + "/exe")) << "the rank lives on";
}

std::string small_config(const std::string& extra) {
  return R"({"name": "small", "models": [{"name": "smollm2-135m")" + extra + R"(}], "methods": ["full"],
    "engine": {"max_new_tokens": 2, "noise_floor": 0},
    "workloads": [{"name": "fact_qa", "things": 4, "filler": 1, "samples": 1}]})";
}

TEST(TensorParallel, ARunGoesOnWithAnyNumberOfRanksBecauseItsCellsAreTheSame) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  const fs::path config = scratch / "config.json";
  const auto run = [&](const std::string& extra) {
    std::ofstream(config) << small_config(extra);
    return run_kvarena({"run", config.string(), "--quiet"}, {.folder = scratch.path()});
  };
  const Finished split = run(R"(, "tensor_parallel": 2)");
  EXPECT_EQ(split.code, 0) << split.err;
  EXPECT_TRUE(contains(split.out, "1 evaluated")) << split.out;
  const Finished alone = run("");
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_TRUE(contains(alone.out, "0 evaluated, 1 were there already")) << alone.out;
}

TEST(TensorParallel, ARankThatIsKilledCostsARunNothing) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  const fs::path config = scratch / "config.json";
  std::ofstream(config) << R"({"name": "small", "models": [{"name": "smollm2-135m", "tensor_parallel": 2}],
    "methods": ["full", {"name": "streaming_llm", "keep": 0.5}], "engine": {"max_new_tokens": 4, "noise_floor": 0},
    "workloads": [{"name": "fact_qa", "things": 4, "filler": 1, "samples": 2}]})";
  std::optional<pid_t> rank;
  std::thread killer([&] {
    rank = rank_below(scratch.path());
    if (rank) ::kill(*rank, SIGKILL);
  });
  const Finished finished =
      run_kvarena({"run", config.string(), "--verbose"},
                  {.environment = {{"TMPDIR", scratch.path().string()}}, .folder = scratch.path()});
  killer.join();
  ASSERT_TRUE(rank);
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "4 evaluated, 0 were there already\n")) << finished.out;
  EXPECT_TRUE(contains(finished.err, "rank 1 of 2 was ended by signal 9 (Killed)")) << finished.err;
}

TEST(TensorParallel, RanksStartedByHandJoinWhereTheConfigSays) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  const fs::path config = scratch / "config.json";
  const std::string place = "127.0.0.1:" + std::to_string(free_port());
  std::ofstream(config) << small_config(R"(, "tensor_parallel": 2, "ranks_at": ")" + place + "\"");
  Finished joined;
  std::thread rank([&] {
    joined = run_kvarena({"rank", "--join", place, "--rank", "1/2", "--threads", "1"},
                         {.environment = {{"GLOO_SOCKET_IFNAME", "lo"}}});
  });
  const Finished finished = run_kvarena({"run", config.string(), "--quiet"},
                                        {.environment = {{"GLOO_SOCKET_IFNAME", "lo"}}, .folder = scratch.path()});
  rank.join();
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "1 evaluated")) << finished.out;
  EXPECT_EQ(joined.code, 0) << joined.err;
}

TEST(TensorParallel, WordsThatMakeNoSenseAreRefused) {
  const ScratchFolder scratch;
  expect_refused(run_kvarena({"rank", "--join", "here", "--rank", "1/2"}), "--join: found \"here\"");
  expect_refused(run_kvarena({"rank", "--join", "here:1", "--rank", "one"}), "--rank: found \"one\"");
  for (const char* rank : {"0/2", "2/2", "-1/2", "1/1"}) {
    expect_refused(run_kvarena({"rank", "--join", "here:1", "--rank", rank}), "rank 0 is the program");
  }
  expect_refused(run_kvarena({"local-rank", "--meet", "x", "--rank", "1/2", "--driver", "1"}),
                 "--driver: found process 1");
  expect_refused(run_kvarena({"model", "logits", "--ids", "1", "--tensor-parallel", "0"}), "--tensor-parallel");
  std::ofstream(scratch / "config.json") << small_config(R"(, "ranks_at": "node1:80")");
  const Finished finished = run_kvarena({"run", (scratch / "config.json").string()}, {.folder = scratch.path()});
  EXPECT_EQ(finished.code, 2);
  EXPECT_TRUE(contains(finished.err, "ranks_at")) << finished.err;
}

}  // namespace
}  // namespace kvarena::testing
