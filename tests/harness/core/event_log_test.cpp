#include "harness/core/event_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "tests/support/temporary_folder.h"

namespace kvarena {
namespace {

using nlohmann::ordered_json;

std::vector<ordered_json> lines_of(const std::filesystem::path& path) {
  std::vector<ordered_json> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(ordered_json::parse(line));
  return lines;
}

TEST(EventLog, AnEventIsALineOfJsonAndALineOfText) {
  const testing::TemporaryFolder folder;
  std::vector<std::string> texts;
  {
    EventLog log({.file = folder / "log.jsonl", .on_text = [&](const std::string& line) { texts.push_back(line); }});
    log.record("judged", {{"sample", "a {} \"b\"\n"}, {"done", 3}, {"seconds", 0.5}});
    log.record("ended", ordered_json::object());
  }
  const auto lines = lines_of(folder / "log.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  std::vector<std::string> keys;
  for (const auto& [key, value] : lines[0].items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"time", "event", "sample", "done", "seconds"}));
  EXPECT_EQ(lines[0]["sample"], "a {} \"b\"\n");
  EXPECT_EQ(lines[0]["time"].get<std::string>().size(), std::string("2026-01-02T03:04:05.678Z").size());
  EXPECT_EQ(lines[1]["event"], "ended");
  EXPECT_EQ(texts, (std::vector<std::string>{"judged sample=a {} \"b\"\n done=3 seconds=0.5", "ended"}));
}

TEST(EventLog, GoesOnWhereAnEarlierOneEndedAndTakesAnyBytes) {
  const testing::TemporaryFolder folder;
  for (int run = 0; run < 2; ++run) {
    EventLog log({.file = folder / "log.jsonl", .on_text = {}});
    log.record("line", {{"text", "\xff\xfe"}});
  }
  const auto lines = lines_of(folder / "log.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1]["text"], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(EventLog, APipeIsRefusedInsteadOfWaitedFor) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(EventLog({.file = folder / "pipe", .on_text = {}}), UserError);
}

TEST(EventLog, LinesOfThreadsAreWhole) {
  const testing::TemporaryFolder folder;
  {
    EventLog log({.file = folder / "log.jsonl", .on_text = {}});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&log, t] {
        for (int i = 0; i < 200; ++i) log.record("step", {{"thread", t}, {"text", std::string(100, 'x')}});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(lines_of(folder / "log.jsonl").size(), 800U);
}

TEST(EventLog, AFileThatCannotBeWrittenIsNamed) {
  try {
    EventLog log({.file = "/proc/none/log.jsonl", .on_text = {}});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("/proc/none/log.jsonl: ", 0), 0U) << error.what();
  }
}

}  // namespace
}  // namespace kvarena
