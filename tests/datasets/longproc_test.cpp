// Samples of LongProc's rows. Its scorer and the searches of the project-made rows: tests/golden/metrics_longproc.
#include <fmt/format.h>

#include <sstream>

#include "datasets/data_files.h"
#include "datasets/official.h"
#include "datasets/program_judge.h"
#include "harness/core/files.h"
#include "harness/core/own_files.h"
#include "tests/datasets/support.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

std::vector<Sample> project_made(const std::string& task) {
  return all_samples("longproc/" + task, "{}", {.data_dir = samples_dir()});
}

/// Walks the one way from city to city that a prompt tells.
std::string walked(const Sample& sample) {
  const std::string& prompt = sample.messages[0].content;
  std::map<std::string, std::pair<std::string, std::string>> ways;  // by city: what goes, and to where
  std::istringstream lines(prompt.substr(prompt.find("[PROBLEM]\n"), sample.question.byte));
  for (std::string line; std::getline(lines, line);) {
    const size_t has = line.find(" has a "), to = line.find(" to ");
    if (has == std::string::npos || to == std::string::npos) continue;
    ways[line.substr(0, has)] = {line.substr(has + 7, to - has - 7), line.substr(to + 4, line.size() - to - 5)};
  }
  const std::string question = question_text(sample);
  const size_t to = question.find(" to ");
  std::string at = question.substr(24, to - 24), route;
  for (const std::string end = question.substr(to + 4, question.find(',') - to - 4); at != end;) {
    const auto& [by, next] = ways.at(at);
    route += fmt::format("{}From {}, take a {} to {}.", route.empty() ? "" : "\n", at, by, next);
    at = next;
  }
  return route;
}

TEST(LongProc, EveryLevelAsksBehindItsContextAndHasRoomForItsOutput) {
  struct Expected {
    const char* task;
    const char* question;
  };
  for (const auto& [task, question] :
       {Expected{"html_to_tsv", "[TARGET INFORMATION]\nOf "}, Expected{"pseudo_to_code", "[PSEUDOCODE]:\nlong long "},
        Expected{"path_traversal", "Now find the route from "}, Expected{"tom_tracking", "[QUESTION]\nWhere does "},
        Expected{"countdown", "Numbers: ["}, Expected{"travel_planning", "YOUR TASK:\nYou visit "}}) {
    for (const auto& [level, tokens] : std::map<std::string, int64_t>{{"0.5k", 1024}, {"2k", 3072}, {"8k", 9216}}) {
      const std::string name = fmt::format("{}_{}", task, level);
      if (name == "travel_planning_0.5k" || name == "pseudo_to_code_8k") continue;
      const auto samples = project_made(name);
      ASSERT_GE(samples.size(), 20U);
      for (const Sample& sample : samples) {
        EXPECT_TRUE(question_text(sample).starts_with(question)) << question_text(sample);
        EXPECT_EQ(nlohmann::json::parse(sample.extras)["task"], task);
        EXPECT_EQ(sample.generation.max_new_tokens, tokens);
      }
    }
  }
}

TEST(LongProc, RoutesAreTheOnesThatTheCitiesMake) {
  for (const char* level : {"path_traversal_0.5k", "path_traversal_2k", "path_traversal_8k"}) {
    for (const Sample& sample : project_made(level)) EXPECT_EQ(sample.references.at(0), walked(sample)) << sample.id;
  }
}

TEST(LongProc, ScorersGetTheMembersOfTheMetadataThatTheyRead) {
  const Sample game = project_made("countdown_0.5k")[0];
  const auto extras = nlohmann::json::parse(game.extras);
  std::string numbers;
  for (const auto& number : extras["nums"]) numbers += (numbers.empty() ? "" : ", ") + number.dump();
  EXPECT_EQ(question_text(game), fmt::format("Numbers: [{}]\nTarget: {}", numbers, extras["target"].get<int>()));
  EXPECT_TRUE(nlohmann::json::parse(project_made("travel_planning_2k")[0].extras).contains("ground_truth_cities"));
}

TEST(LongProc, ARowWithoutAProblemOrMetadataIsNamed) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kvarena_longproc_{}", ::getpid());
  const auto message = [&](const char* prompt, const char* metadata) {
    std::filesystem::create_directories(folder / "longproc");
    const nlohmann::json row = {
        {"id", "a"}, {"input_prompt", prompt}, {"reference_output", "x"}, {"metadata", metadata}};
    std::ofstream(folder / "longproc" / "countdown_2k.jsonl") << row.dump();
    std::string said = error_of([&] { (void)all_samples("longproc/countdown_2k", "{}", {.data_dir = folder}); });
    std::filesystem::remove_all(folder);
    return said;
  };
  EXPECT_NE(message("x", "{}").find("countdown_2k.jsonl:1: input_prompt: found no problem"), std::string::npos);
  EXPECT_NE(message("Numbers:", "[").find("countdown_2k.jsonl:1: metadata: found another text"), std::string::npos);
  EXPECT_TRUE(official_sha256("longproc/countdown_2k.jsonl").has_value());
}

/// Lets programs of answers run as long as it lives.
class MayRun {
 public:
  MayRun() { ::setenv("KVARENA_RUN_CODE", "1", 1); }
  ~MayRun() { ::unsetenv("KVARENA_RUN_CODE"); }
  MayRun(const MayRun&) = delete;
  MayRun& operator=(const MayRun&) = delete;
};

/// Says that this machine cannot run them; empty where it can. Another error fails the test.
std::string why_not(ProgramJudge& judge) {
  std::string error = error_of([&] { (void)judge.ask("", "[]"); });
  EXPECT_TRUE(error.empty() || error.find("unshare with user namespaces") != std::string::npos) << error;
  return error;
}

std::string fenced(const std::string& code) { return fmt::format("```cpp\n{}\n```", code); }

TEST(Programs, RunOnlyWhereTheyMay) {
  const Sample sample = project_made("pseudo_to_code_0.5k")[0];
  const std::vector<std::string> answers = {fenced(sample.references.at(0))};
  const std::string error = error_of([&] { (void)sample.live.reply(answers); });
  EXPECT_NE(error.find("expected KVARENA_RUN_CODE=1"), std::string::npos) << error;
}

TEST(Programs, VerdictsAreThoseOfTheOfficialCode) {
  const MayRun may_run;
  ProgramJudge judge(own_file("program_judge.py"));
  if (const std::string reason = why_not(judge); !reason.empty()) GTEST_SKIP() << reason;
  size_t compared = 0;
  for (const auto& problem : nlohmann::json::parse(
           read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_longproc.json"))) {
    if (problem["task"] != "pseudo_to_code") continue;
    ASSERT_GE(problem["answers"].size(), 20U);
    compared += problem["answers"].size();
    for (const auto& row : problem["answers"]) {
      const nlohmann::json said = judge.ask(row[0], problem["testcases"].dump());
      EXPECT_EQ(said["valid"].get<bool>() ? 1 : 0, row[1]["accuracy"]) << row << said;
      EXPECT_EQ(said["extracted"].get<bool>() ? 1 : 0, row[1]["extraction_rate"]) << row << said;
    }
  }
  testing::compared_scores("longproc", compared);
}

TEST(Programs, ReferencesPassTheirTestsAndTheRecordIsScored) {
  const MayRun may_run;
  for (const char* level : {"pseudo_to_code_0.5k", "pseudo_to_code_2k"}) {
    const Sample sample = project_made(level)[7];
    const std::vector<std::string> right = {fenced(sample.references.at(0))}, wrong = {fenced("int main() {}")};
    LiveReply reply;
    const std::string error = error_of([&] { reply = sample.live.reply(right); });
    if (error.find("unshare with user namespaces") != std::string::npos) GTEST_SKIP() << error;
    EXPECT_EQ(error, "");
    EXPECT_EQ(reply.message, "");
    EXPECT_EQ(nlohmann::json::parse(reply.record)["valid"], true) << reply.record;
    EXPECT_EQ(nlohmann::json::parse(reply.record)["answer"], right[0]);
    EXPECT_EQ(nlohmann::json::parse(sample.live.reply(wrong).record)["error"], "inconsistent");
  }
}

TEST(Programs, SeeNothingOfTheMachine) {
  const MayRun may_run;
  ProgramJudge judge(own_file("program_judge.py"));
  if (const std::string reason = why_not(judge); !reason.empty()) GTEST_SKIP() << reason;
  const TemporaryFile kept("kept", "x");
  const std::string program = fenced(fmt::format(R"(#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>
int main() {{
  ifstream passwords("/etc/passwd"), kept("{0}"), parent("/proc/1/cmdline");
  sockaddr_in self = {{}};
  self.sin_family = AF_INET;
  self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connect(socket(AF_INET, SOCK_STREAM, 0), (sockaddr*)&self, sizeof self);
  const int why = errno, removed = remove("{0}");
  cout << passwords.good() << kept.good() << parent.good() << removed << getpid() << why << endl;
}})",
                                                 kept.path().string()));
  const nlohmann::json said = judge.ask(program, nlohmann::json{{{""}, {fmt::format("000-11{}", ENETUNREACH)}}}.dump());
  EXPECT_EQ(said["valid"], true) << said;
  EXPECT_TRUE(std::filesystem::exists(kept.path()));
}

}  // namespace
}  // namespace kvarena::datasets
