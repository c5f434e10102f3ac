// BFCL's prompts and conversations of several turns, against its own runner and evaluation
// (tests/golden/datasets_bfcl.py).

#include "datasets/bfcl.h"

#include <cstdlib>

#include "datasets/bfcl_judge.h"
#include "datasets/data_files.h"
#include "datasets/official.h"
#include "harness/core/files.h"
#include "tests/datasets/support.h"
#include "tests/support/compared.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

constexpr const char* kOneTurn[] = {
    "simple",        "multiple",      "parallel",      "parallel_multiple",      "irrelevance",
    "live_simple",   "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance",
    "live_relevance"};
constexpr const char* kMemories[] = {"kv", "rec_sum", "vector"};
constexpr const char* kCategories[] = {"base", "long_context", "miss_func", "miss_param"};

void expect_part(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nhas no " << part;
}

json read_json(const std::filesystem::path& path) { return json::parse(std::ifstream(path)); }

/// SHA-256 of role and content of each message, as the golden script takes it.
std::string digest(const std::vector<Message>& messages) {
  json pairs = json::array();
  for (const Message& message : messages) pairs.push_back({message.role, message.content});
  return sha256(pairs.dump());
}

/// A sample's conversation with answers that are there already.
struct Talk {
  std::vector<std::vector<Message>> contexts;
  json record;  // null while it is not over
};

Talk talk_of(const Sample& sample, const std::vector<std::string>& answers) {
  Talk talk{.contexts = {sample.messages}, .record = {}};
  for (size_t i = 0; i < answers.size(); ++i) {
    const LiveReply reply = sample.live.reply(std::span(answers).first(i + 1));
    talk.contexts.back().push_back({"assistant", answers[i]});
    if (reply.over()) {
      talk.record = json::parse(reply.record);
      EXPECT_EQ(i + 1, answers.size()) << sample.id << " is over before the runner's conversation is";
      break;
    }
    if (reply.anew.empty()) {
      talk.contexts.back().push_back({"user", reply.message});
    } else {
      talk.contexts.push_back(reply.anew);
    }
  }
  return talk;
}

json digests(const std::vector<std::vector<Message>>& contexts) {
  json all = json::array();
  for (const std::vector<Message>& messages : contexts) all.push_back(digest(messages));
  return all;
}

/// Samples of all categories by id.
std::map<std::string, Sample> samples_of(const std::filesystem::path& data_dir) {
  std::map<std::string, Sample> samples;
  const auto add = [&](const std::string& name, const char* parameters) {
    for (Sample& sample : all_samples(name, parameters, {.data_dir = data_dir})) samples[sample.id] = std::move(sample);
  };
  for (const char* category : kOneTurn) add(std::string("bfcl/") + category, "{}");
  for (const char* category : kCategories) add(std::string("bfcl/multi_turn_") + category, R"({"room": 1000000})");
  for (const char* kind : kMemories) add(std::string("bfcl/memory_") + kind, R"({"room": 1000000})");
  return samples;
}

/// Says that the package is absent; empty where it can be asked. Another error fails the test.
std::string why_not(const Sample& sample) {
  const std::vector<std::string> answers = {""};
  const std::string error = error_of([&] { (void)sample.live.reply(answers); });
  EXPECT_TRUE(error.empty() || error.find("pip install bfcl-eval") != std::string::npos) << error;
  return error;
}

void expect_prompts_of_the_runner(const json& rows, const std::map<std::string, Sample>& samples) {
  testing::compared_prompts("bfcl", rows.size());
  for (const json& row : rows) {
    const Sample& sample = samples.at(row["id"]);
    EXPECT_EQ(digest(sample.messages), row["prompt"]) << row["id"];
    EXPECT_EQ(sample.question.message, sample.messages.size() - 1) << "functions are context";
  }
}

void expect_conversations_of_the_runner(const json& rows, const std::map<std::string, Sample>& samples) {
  size_t compared = 0;
  for (const json& row : rows) {
    if (!row.contains("messages")) continue;
    ++compared;
    SCOPED_TRACE(row["id"].get<std::string>() + ", " + row["script"].get<std::string>());
    const Talk talk = talk_of(samples.at(row["id"]), row["answers"]);
    ASSERT_FALSE(talk.record.is_null()) << "goes on where the runner's conversation is over";
    EXPECT_EQ(digests(talk.contexts), json::array({row["messages"]}));
    EXPECT_EQ(talk.record["valid"], row["valid"]);
    EXPECT_EQ(talk.record["error"], row["error"]);
  }
  testing::compared_scores("bfcl_multi_turn", compared);
}

/// The record's verdicts as the golden script has them.
json verdicts(const json& record) {
  json all = json::array();
  for (const json& question : record["questions"]) {
    all.push_back({question["id"], question["valid"], question["error"]});
  }
  return all;
}

void expect_memories_of_the_runner(const json& rows, const std::filesystem::path& data_dir,
                                   const std::vector<std::string>& kinds) {
  std::map<int64_t, std::map<std::string, Sample>> by_room;
  size_t compared = 0;
  for (const json& row : rows) {
    const auto of = [id = row["id"].get<std::string>()](const std::string& kind) {
      return id.starts_with("memory_" + kind + "-");
    };
    if (!row.contains("questions") || std::ranges::none_of(kinds, of)) continue;
    compared += row["questions"].size();
    SCOPED_TRACE(row["id"].get<std::string>() + ", " + row["script"].get<std::string>());
    std::map<std::string, Sample>& samples = by_room[row["room"]];
    for (const std::string& kind : kinds) {
      if (samples.contains(row["id"])) break;
      const std::string parameters = json{{"room", row["room"]}}.dump();
      for (Sample& sample : all_samples("bfcl/memory_" + kind, parameters, {.data_dir = data_dir})) {
        samples[sample.id] = std::move(sample);
      }
    }
    const Talk talk = talk_of(samples.at(row["id"]), row["answers"]);
    ASSERT_FALSE(talk.record.is_null()) << "goes on where the runner's conversations are over";
    EXPECT_EQ(digests(talk.contexts), row["contexts"]);
    EXPECT_EQ(verdicts(talk.record), row["questions"]);
  }
  testing::compared_scores("bfcl_memory", compared);
}

const std::filesystem::path kGolden = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/datasets_bfcl.json";

TEST(Bfcl, PromptsAreTheRunners) { expect_prompts_of_the_runner(read_json(kGolden), samples_of({})); }

TEST(BfclMultiTurn, ConversationsAndVerdictsAreTheRunners) {
  const std::map<std::string, Sample> samples = samples_of({});
  if (const std::string reason = why_not(samples.at("multi_turn_base_0")); !reason.empty()) GTEST_SKIP() << reason;
  expect_conversations_of_the_runner(read_json(kGolden), samples);
}

TEST(BfclMemory, DaysQuestionsAndVerdictsAreTheRunners) {
  const auto samples = all_samples("bfcl/memory_kv");
  if (const std::string reason = why_not(samples.at(0)); !reason.empty()) GTEST_SKIP() << reason;
  expect_memories_of_the_runner(read_json(kGolden), {}, {"kv", "rec_sum"});
}

TEST(BfclMemory, DaysQuestionsAndVerdictsOfVectorsAreTheRunners) {
  const auto samples = all_samples("bfcl/memory_vector");
  if (const std::string reason = why_not(samples.at(0)); !reason.empty()) GTEST_SKIP() << reason;
  expect_memories_of_the_runner(read_json(kGolden), {}, {"vector"});
}

TEST(BfclMemory, AnEncoderFindsWhatIsMeant) {
  const auto samples = all_samples("bfcl/memory_vector");
  if (const std::string reason = why_not(samples.at(0)); !reason.empty()) GTEST_SKIP() << reason;
  const std::vector<std::string> answers = {
      "[archival_memory_add(text='The bank opens at nine.'), archival_memory_add(text='My horse is called Ida.'), "
      "archival_memory_retrieve(query='Which animal do I keep?', top_k=1)]"};
  const std::string message = samples[0].live.reply(answers).message;
  expect_part(R"("text": "My horse is called Ida.")", message);
  EXPECT_EQ(message.find(R"("text": "The bank)"), std::string::npos) << message;
}

TEST(Bfcl, OfficialRowsHaveTheRunnersPromptsAndConversations) {
  const char* file = std::getenv("KVARENA_BFCL_CONVERSATIONS");
  if (file == nullptr) GTEST_SKIP() << "KVARENA_BFCL_CONVERSATIONS names no file of tests/golden/datasets_bfcl.py";
  for (const char* category : kCategories) {
    const FileCheck check = check_data(find_workload(std::string("bfcl/multi_turn_") + category, "test"), {});
    EXPECT_EQ(check.state, FileState::official) << category << ": " << check.detail;
  }
  for (const char* kind : kMemories) {
    const FileCheck check = check_data(find_workload(std::string("bfcl/memory_") + kind, "test"), {});
    EXPECT_EQ(check.state, FileState::official) << kind << ": " << check.detail;
  }
  const std::map<std::string, Sample> samples = samples_of(official_dir({}));
  const json rows = read_json(file);
  expect_prompts_of_the_runner(rows, samples);
  expect_conversations_of_the_runner(rows, samples);
  expect_memories_of_the_runner(rows, official_dir({}), {std::begin(kMemories), std::end(kMemories)});
}

TEST(BfclMultiTurn, AConversationThatOutgrowsItsRoomHasFailed) {
  const auto samples = all_samples("bfcl/multi_turn_base", R"({"room": 700})");
  if (const std::string reason = why_not(samples[0]); !reason.empty()) GTEST_SKIP() << reason;
  EXPECT_EQ(samples[0].live.most_tokens, 700);
  const std::vector<std::string> answers = {"[mv(source='town.txt', destination='old')]",
                                            "[touch(file_name='fair.txt')]"};
  EXPECT_FALSE(samples[0].live.reply(std::span(answers).first(1)).over());
  const LiveReply reply = samples[0].live.reply(answers);
  EXPECT_TRUE(reply.over());
  EXPECT_EQ(json::parse(reply.record)["valid"], false);
  EXPECT_EQ(json::parse(reply.record)["error"], "multi_turn:inference_error");
}

TEST(BfclMultiTurn, WhatAnAnswerMustNotTouchIsRefused) {
  const auto samples = all_samples("bfcl/multi_turn_base");
  if (const std::string reason = why_not(samples[0]); !reason.empty()) GTEST_SKIP() << reason;
  const TemporaryFile kept("kept", "");
  const std::vector<std::string> answers = {"[cat(file_name=1 + __import__('os').remove('" + kept.path().string() +
                                            "'))]"};
  (void)samples[0].live.reply(answers);
  EXPECT_TRUE(std::filesystem::exists(kept.path()));
}

/// A judge by a script of ours, whose lines follow `said` as its first word.
struct OwnJudge {
  explicit OwnJudge(const std::string& script)
      : file("judge.py",
             "import json, os, socket, sys, time\n"
             "channel = socket.socket(fileno=int(sys.argv[1])).makefile('rw', newline='\\n')\n"
             "def say(text):\n    channel.write(text + '\\n')\n    channel.flush()\n" +
                 script),
        judge(file.path()) {}
  std::string error(const std::vector<std::string>& answers = {"a"}) {
    return error_of([&] { (void)judge.ask("{}", answers, length); });
  }
  static int64_t length(const std::string& text) { return std::ssize(text); }
  TemporaryFile file;
  BfclJudge judge;
};

constexpr const char* kAnswers =
    "say('{\"ready\": true}')\n"
    "for line in channel:\n"
    "    answers = json.loads(line)['answers']\n";

TEST(BfclJudge, IsAskedAgainAfterItFailed) {
  OwnJudge own(std::string(kAnswers) +
               "    if answers[-1] == 'die': os._exit(3)\n"
               "    if answers[-1] == 'kill': os.kill(os.getpid(), 9)\n"
               "    if answers[-1] == 'odd': say('no JSON')\n"
               "    elif answers[-1] == 'list': say('[1]')\n"
               "    elif answers[-1] == 'error': say('{\"error\": \"KeyError: id\"}')\n"
               "    elif answers[-1] == 'count':\n"
               "        say('{\"count\": \"four\"}')\n"
               "        say(json.dumps({'messages': [json.loads(channel.readline())]}))\n"
               "    else: say(json.dumps({'messages': [{'role': 'user', 'content': str(len(answers))}]}))\n");
  const std::vector<std::string> three = {"a", "b\xff", "c"}, count = {"count"};
  const auto asked = [&] { return own.judge.ask("{}", three, OwnJudge::length)["messages"][0]["content"]; };
  EXPECT_EQ(own.judge.ask("{}", count, OwnJudge::length)["messages"], json::parse(R"([{"tokens": 4}])"));
  EXPECT_EQ(asked(), "3");
  expect_part("BFCL's judge: found its Python process ended with exit code 3", own.error({"die"}));
  EXPECT_EQ(asked(), "3");
  expect_part("ended by signal 9", own.error({"kill"}));
  expect_part("found \"no JSON\" from its Python process, expected a line of JSON", own.error({"odd"}));
  expect_part("found [1], expected what follows", own.error({"list"}));
  expect_part("found KeyError: id", own.error({"error"}));
  EXPECT_EQ(asked(), "3");
}

TEST(BfclJudge, SaysHowToGetThePackage) {
  OwnJudge own("say(json.dumps({'error': 'no bfcl_eval'}))\n");
  expect_part("found no bfcl_eval", own.error());
  expect_part("python3 -m pip install bfcl-eval==2026.3.23", own.error());
}

TEST(BfclJudge, HasATimeLimit) {
  ::setenv("KVARENA_PYTHON_SECONDS", "1", 1);
  OwnJudge slow("time.sleep(100)\n");
  expect_part("no answer within 1 s", slow.error());
  OwnJudge hangs(std::string(kAnswers) + "    time.sleep(100)\n");
  expect_part("no answer within 1 s", hangs.error());
  ::unsetenv("KVARENA_PYTHON_SECONDS");
}

TEST(BfclMultiTurn, RowsOfAnotherFormAreRefused) {
  const auto folder = std::filesystem::temp_directory_path() / ("kvarena_bfcl_" + std::to_string(::getpid()));
  const auto write = [&](const std::string& name, const json& row) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << row.dump() << "\n";
  };
  const std::string file = "BFCL_v4_multi_turn_base.json";
  const auto refusal = [&](const json& changes, const json& truth) {
    json row = {{"id", "multi_turn_base_0"}, {"involved_classes", {"MathAPI"}}, {"initial_config", json::object()}};
    row["question"] =
        json::parse(R"([[{"role": "user", "content": "Add."}], [{"role": "user", "content": "Again."}]])");
    row.update(changes);
    write("bfcl/" + file, row);
    write("bfcl/possible_answer/" + file, {{"id", "multi_turn_base_0"}, {"ground_truth", truth}});
    return error_of([&] { (void)all_samples("bfcl/multi_turn_base", "{}", {.data_dir = folder}); });
  };
  write("bfcl/multi_turn_func_doc/math_api.json", {{"name", "add"}, {"description", "Adds."}, {"parameters", {}}});
  const json two = {json::array(), json::array()};
  EXPECT_EQ(refusal(json::object(), two), "");
  expect_part("as many in \"question\" as in \"ground_truth\"", refusal(json::object(), {json::array()}));
  expect_part("found the class \"MailAPI\"", refusal({{"involved_classes", {"MailAPI"}}}, two));
  expect_part("no function \"sub\" to hold out", refusal({{"missed_function", {{"1", {"sub"}}}}}, two));
  expect_part("no accepted answer for multi_turn_base_1", refusal({{"id", "multi_turn_base_1"}}, two));
  std::filesystem::remove_all(folder);
}

TEST(BfclMultiTurn, ResultsAreFoundInThePackagesText) {
  const std::string first = R"-({'role': 'tool', 'name': "cd(folder='a')", 'content': '{"current": "a"}'})-";
  const std::string second = R"-({'role': 'tool', 'name': 'ls()', 'content': "{'error': 'no, [x]'}"})-";
  const std::string text = "[" + first + ", " + second + "]";
  std::vector<std::pair<std::string, std::string>> found;
  for (const ToolResult& result : bfcl_results(text)) {
    found.emplace_back(result.tool, text.substr(result.begin, result.end - result.begin));
  }
  EXPECT_EQ(found, (std::vector<std::pair<std::string, std::string>>{{"cd", first}, {"ls", second}}));
  EXPECT_TRUE(bfcl_results("Now list what is there: " + text).empty());
  EXPECT_TRUE(bfcl_results("").empty());
}

}  // namespace
}  // namespace kvarena::datasets
