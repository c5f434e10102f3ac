// The tool loop: its hotel beside one in Python, what its samples ask, and what its right calls lead to.

#include <fmt/format.h>

#include <set>
#include <sstream>

#include "datasets/conversation.h"
#include "datasets/hotel.h"
#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

Hotel hotel_after(const std::vector<std::string>& calls) {
  Hotel hotel;
  for (const std::string& call : calls) {
    EXPECT_FALSE(hotel.carry_out(read_call(call).value()).starts_with("error")) << call;
  }
  return hotel;
}

/// Answers as `answer` chooses from the right call, and the record at the end; messages on the way are added to `said`.
json played(const Sample& sample, const std::function<std::string(size_t, const ToolCall&)>& answer,
            std::vector<std::string>* said = nullptr) {
  std::vector<std::string> answers;
  for (size_t i = 0; i < sample.references.size(); ++i) {
    const json right = json::parse(sample.references[i]);
    ToolCall call{.name = right["name"], .arguments = {}};
    for (const char* key : {"item", "guest", "name", "room"}) {
      if (!right["arguments"].contains(key)) continue;
      const json& value = right["arguments"][key];
      if (value.is_number()) {
        call.arguments.emplace_back(key, value.get<int64_t>());
      } else {
        call.arguments.emplace_back(key, value.get<std::string>());
      }
    }
    answers.push_back(answer(i, call));
    const LiveReply reply = sample.live.reply(answers);
    EXPECT_EQ(reply.message.empty(), i + 1 == sample.references.size());
    if (said != nullptr) said->push_back(reply.message);
  }
  return json::parse(sample.live.reply(answers).record);
}

std::string right_call(size_t, const ToolCall& call) { return to_text(call); }

/// The rooms that the text before the question tells of a guest, oldest first.
std::vector<int64_t> told_rooms(const Sample& sample, const std::string& guest) {
  const std::string text = sample.messages[0].content.substr(0, sample.question.byte);
  std::vector<int64_t> rooms;
  const std::string said = fmt::format("Request: Move \"{}\" to room ", guest);
  for (size_t at = text.find(said); at != std::string::npos; at = text.find(said, at + 1)) {
    rooms.push_back(std::stoll(text.substr(at + said.size())));
  }
  return rooms;
}

TEST(Hotel, DoesWhatOneInPythonDoes) {
  const auto rows = json_lines(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_tool_loop.jsonl");
  int64_t steps = 0, refused = 0;
  for (const json& row : rows) {
    const Hotel start = hotel_after(row["begin"]);
    Hotel hotel = start;
    const json record = json::parse(row["prediction"].get<std::string>());
    for (const json& step : record["steps"]) {
      const auto call = read_call(step["answer"].get<std::string>());
      EXPECT_EQ(call ? to_json(*call) : json(), step["call"]) << step["answer"];
      EXPECT_EQ(call ? hotel.carry_out(*call) : "error: not a call", step["result"]) << step["answer"];
      ++steps;
      refused += step["result"].get<std::string>().starts_with("error");
    }
    EXPECT_EQ(hotel.changes(start), record["state"]);
  }
  EXPECT_GT(steps, 150);
  EXPECT_GT(refused, 30);
}

TEST(Hotel, ReadsCallsAndNothingElse) {
  for (const char* text :
       {R"(send(guest="Tom", room=12, item="lamp"))", R"([ send ( guest = 'Tom',room=12, item="lamp" ) ])"}) {
    ASSERT_TRUE(read_call(text)) << text;
    EXPECT_EQ(to_text(*read_call(text)), R"(send(guest="Tom", room=12, item="lamp"))");
  }
  EXPECT_EQ(to_json(read_call("find()").value()).dump(), R"({"arguments":{},"name":"find"})");
  for (const char* text : {"", "find", "find(", "find(guest)", R"(find(guest="Tom")", R"(find(guest="Tom"))x)",
                           R"(f(a=1, a=2))", R"(f(a=1,))", R"(f(a=1.5))", R"(f(a=-1))", R"(f(a=1234567890))",
                           R"([f(a=1))", R"(f(a="\n"))", R"({"name": "find"})", "find(guest=Tom)", "f(a=007)"}) {
    EXPECT_FALSE(read_call(text)) << text;
  }
}

TEST(ToolLoop, RightCallsLeadToTheStateThatIsAskedFor) {
  for (const char* style : {"completion", "chat"}) {
    for (const Sample& sample : all_samples("tool_loop", fmt::format(R"({{"live": 13, "style": "{}"}})", style))) {
      const json extras = json::parse(sample.extras);
      const json record = played(sample, right_call);
      EXPECT_EQ(record["state"], extras["state"]);
      EXPECT_EQ(record["steps"].size(), 13U);
      for (const json& step : record["steps"]) {
        EXPECT_FALSE(step["result"].get<std::string>().starts_with("error")) << step;
      }
      EXPECT_FALSE(extras["state"]["rooms"].empty());
      EXPECT_FALSE(extras["state"]["items"].empty());
    }
  }
}

TEST(ToolLoop, ResultsOfTheModelsOwnCallsComeBack) {
  const Sample sample = all_samples("tool_loop", R"({"live": 6, "samples": 1})")[0];
  const json fifth = json::parse(sample.references[4]);
  ASSERT_EQ(fifth["name"], "find");
  const std::string guest = fifth["arguments"]["name"];
  std::vector<std::string> said;
  const json record = played(
      sample,
      [&](size_t i, const ToolCall& call) {  // the guest who is looked for was moved by a wrong call
        if (i == 0) return fmt::format("move(guest=\"{}\", room=7)", guest);
        return i == 2 ? "I do not know." : to_text(call);
      },
      &said);
  EXPECT_EQ(said[4].find("\nResult: 7\n\nRequest: Send a \""), 0U) << said[4];
  EXPECT_TRUE(said[2].starts_with("\nResult: error: not a call\n\nRequest: ")) << said[2];
  EXPECT_TRUE(said[4].ends_with("\nCall:"));
  EXPECT_EQ(record["state"]["rooms"][guest], 7);
  EXPECT_TRUE(record["steps"][2]["call"].is_null());
  EXPECT_NE(record["state"], json::parse(sample.extras)["state"]);
}

TEST(ToolLoop, ALongerHistoryHasTheSameLiveRequests) {
  const auto few = all_samples("tool_loop", R"({"turns": 12, "live": 6})");
  const auto many = all_samples("tool_loop", R"({"turns": 200, "live": 6})");
  ASSERT_EQ(few.size(), 20U);
  std::set<std::string> questions;
  for (size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(few[i].references, many[i].references);
    EXPECT_EQ(json::parse(few[i].extras)["state"], json::parse(many[i].extras)["state"]);
    EXPECT_EQ(question_text(few[i]), question_text(many[i]));
    EXPECT_GT(many[i].messages[0].content.size(), 10 * few[i].messages[0].content.size());
    questions.insert(question_text(few[i]) + few[i].references[0]);
  }
  EXPECT_EQ(questions.size(), 20U);
}

TEST(ToolLoop, SaysWhatItsCallsNeedAndWhatIsNoLongerRight) {
  for (const Sample& sample : all_samples("tool_loop", R"({"turns": 60, "live": 6})")) {
    std::vector<json> calls;
    for (const std::string& reference : sample.references) calls.push_back(json::parse(reference)["arguments"]);
    const json stale = json::parse(sample.extras)["stale"];
    EXPECT_EQ(calls[0]["guest"], calls[1]["guest"]);
    EXPECT_EQ(calls[0]["room"], calls[1]["room"]);
    EXPECT_EQ(stale[1]["room"].get<std::vector<int64_t>>(), told_rooms(sample, calls[0]["guest"])) << "changed since";
    EXPECT_EQ(told_rooms(sample, calls[2]["guest"]), (std::vector<int64_t>{calls[2]["room"].get<int64_t>()}))
        << "said once";
    EXPECT_EQ(stale[2]["room"], json::array());
    const std::vector<int64_t> twice = told_rooms(sample, calls[3]["guest"]);
    ASSERT_EQ(twice.size(), 2U);
    EXPECT_EQ(calls[3]["room"], twice[1]);
    EXPECT_EQ(stale[3]["room"], json({twice[0]}));
    EXPECT_EQ(calls[4]["name"], calls[5]["guest"]);
  }
}

TEST(ToolLoop, ContextTokensAreReachedAndRoomIsLeftForWhatFollows) {
  const WordTokens tokens;
  const OpenSettings settings{.tokens = &tokens};
  for (const int64_t wanted : {1000, 8000}) {
    for (const char* style : {"completion", "chat"}) {
      const std::string parameters =
          fmt::format(R"({{"context_tokens": {}, "style": "{}", "samples": 2}})", wanted, style);
      for (const Sample& sample : all_samples("tool_loop", parameters, settings)) {
        int64_t length = 0;
        for (const Message& message : sample.messages) length += std::ssize(tokens.encode(message.content));
        EXPECT_GE(length, wanted);
        EXPECT_LE(length, wanted + wanted / 50 + 60);
        std::vector<std::string> said;
        (void)played(sample, right_call, &said);
        int64_t more = 0;
        for (const std::string& message : said)
          more += std::ssize(tokens.encode(message)) + sample.generation.max_new_tokens;
        EXPECT_LE(more, sample.live.most_tokens);
      }
    }
  }
  EXPECT_NE(error_of([] { (void)all_samples("tool_loop", R"({"context_tokens": 100})"); }).find("without a tokenizer"),
            std::string::npos);
}

/// Texts that a sample says are results, with their tools.
std::vector<std::pair<std::string, std::string>> told(const Sample& sample) {
  std::vector<std::pair<std::string, std::string>> results;
  for (const ToolResult& result : sample.results) {
    const std::string& content = sample.messages[result.message].content;
    results.emplace_back(result.tool, content.substr(result.begin, result.end - result.begin));
  }
  return results;
}

TEST(ToolLoop, SaysWhereResultsAreAlsoThoseOfLiveCalls) {
  for (const char* style : {"completion", "chat"}) {
    Sample sample = all_samples("tool_loop", fmt::format(R"({{"live": 6, "samples": 1, "style": "{}"}})", style))[0];
    // The text again: requests with their calls, carried out anew.
    std::string text;
    for (const Message& message : sample.messages) text += message.content + "\n";
    Hotel hotel;
    std::vector<std::pair<std::string, std::string>> expected;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const size_t call = line.starts_with("Call: ") ? 6 : 0;
      const auto made = read_call(line.substr(call));
      if (made) expected.emplace_back(made->name, hotel.carry_out(*made));
    }
    ASSERT_GE(expected.size(), 12U);
    EXPECT_EQ(told(sample), expected) << style;
    std::vector<std::string> answers;
    for (size_t i = 0; i + 1 < sample.references.size(); ++i) {
      answers.push_back(i == 1 ? "nothing" : fmt::format("find(name=\"{}\")", "nobody"));
      LiveReply reply = sample.live.reply(answers);
      add_turn(sample, answers.back(), reply.message, reply.results);
      expected.emplace_back(i == 1 ? "" : "find",
                            i == 1 ? "error: not a call" : hotel.carry_out(*read_call(answers.back())));
      EXPECT_EQ(told(sample), expected) << style << " " << i;
    }
  }
}

}  // namespace
}  // namespace kvarena::datasets
