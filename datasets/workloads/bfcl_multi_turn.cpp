// BFCL, multi_turn: requests of several turns about files, tickets, posts, orders, cars and flights. The model's calls
// are carried out; a turn ends with an answer that makes none, or after 21. Rows, loop and verdict are the package's
// own (bfcl_judge.h): the states that calls lead to, turn by turn, and what they returned.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/bfcl.h"
#include "datasets/bfcl_judge.h"
#include "datasets/row_source.h"
#include "harness/core/error.h"
#include "harness/core/own_files.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

constexpr int64_t kFrameTokens = 16;  // of a chat template around a message, at most
constexpr int64_t kAnswerTokens = 512;

// constants/executable_backend_config.py: files of multi_turn_func_doc/ by class.
constexpr std::array<std::pair<std::string_view, const char*>, 8> kDescriptions = {{
    {"GorillaFileSystem", "gorilla_file_system.json"},
    {"MathAPI", "math_api.json"},
    {"MessageAPI", "message_api.json"},
    {"TicketAPI", "ticket_api.json"},
    {"TradingBot", "trading_bot.json"},
    {"TravelAPI", "travel_booking.json"},
    {"TwitterAPI", "posting_api.json"},
    {"VehicleControlAPI", "vehicle_control.json"},
}};

/// Functions of the classes that a row is about.
class Descriptions {
 public:
  Descriptions(WorkloadInfo info, std::filesystem::path root) : info_(std::move(info)), root_(std::move(root)) {
    info_.folder = "bfcl/multi_turn_func_doc";
  }

  const Row& of(const std::string& name, const std::string& place) {
    const auto [known, fresh] = read_.try_emplace(name, Row::array());
    if (!fresh) return known->second;
    const auto* const file = std::ranges::find(kDescriptions, name, [](const auto& entry) { return entry.first; });
    if (file == kDescriptions.end()) {
      fail({.place = place, .found = fmt::format("the class \"{}\"", name), .expected = "one of multi_turn's eight"});
    }
    info_.files = {file->second};
    RecordReader rows(require_data_file(info_, root_).path);
    while (const auto record = rows.next()) known->second.push_back(parse_object(*record));
    return known->second;
  }

 private:
  WorkloadInfo info_;
  std::filesystem::path root_;
  std::map<std::string, Row> read_;
};

/// Takes the function of that name out of the list.
Row taken_out(Row& functions, const std::string& name, const std::string& place) {
  const auto found = std::ranges::find_if(functions, [&](const Row& function) { return function["name"] == name; });
  if (found == functions.end()) fail({.place = place, .found = fmt::format("no function \"{}\" to hold out", name)});
  Row function = *found;
  functions.erase(found);
  return function;
}

/// The row with its functions: those offered from the start, and in the place of names those that are told later.
Row with_functions(Row row, Descriptions& descriptions, const std::string& place) {
  Row functions = Row::array();
  for (const std::string& name : strings_field(row, "involved_classes", place)) {
    for (const Row& function : descriptions.of(name, place)) functions.push_back(function);
  }
  if (row.contains("missed_function")) {
    for (auto& [turn, names] : row["missed_function"].items()) {
      for (Row& name : names) name = taken_out(functions, name.get<std::string>(), place);
    }
  }
  row["function"] = with_bfcl_hints(std::move(functions));
  return row;
}

/// Refuses turns that cannot be had one message after the other.
void require_turns(const Row& turns, const Row& truth, const std::string& place) {
  const auto one_text = [](const Row& turn) { return turn.is_array() && turn.size() <= 1; };
  const bool rows = turns.is_array() && !turns.empty() && truth.is_array() && turns.size() == truth.size();
  if (rows && turns[0].is_array() && !turns[0].empty() && std::all_of(turns.begin() + 1, turns.end(), one_text)) return;
  fail({.place = place,
        .found = "turns of another form",
        .expected =
            "as many in \"question\" as in \"ground_truth\", the first with a message, others with at most one"});
}

/// A row's conversation, which replies of its sample share.
struct Task {
  std::shared_ptr<BfclJudge> judge;
  std::string text;                      // for the judge
  size_t prompt = 0;                     // messages before the first answer
  int64_t room = 0;                      // tokens
  const TokenCounter* tokens = nullptr;  // null: a byte counts as one

  [[nodiscard]] int64_t length(const std::string& content) const {
    return kFrameTokens + (tokens == nullptr ? std::ssize(content) : std::ssize(tokens->encode(content)));
  }

  [[nodiscard]] LiveReply reply(std::span<const std::string> answers) const {
    const json said = judge->ask(text, answers);
    if (said.contains("valid")) {
      return {.message = "",
              .record = json{{"valid", said["valid"]}, {"error", said["error"]}, {"result", said["result"]}}.dump(),
              .results = {}};
    }
    const json& messages = said["messages"];
    int64_t taken = kAnswerTokens;
    for (size_t i = prompt + 1; i < messages.size(); ++i) taken += length(messages[i]["content"]);
    const std::string refusal = fmt::format("more than {} tokens behind the first answer", room);
    if (taken > room) {
      return {.message = "",
              .record = json{{"valid", false}, {"error", "multi_turn:inference_error"}, {"result", refusal}}.dump(),
              .results = {}};
    }
    LiveReply reply{.message = messages.back()["content"], .record = "", .results = {}};
    reply.results = bfcl_results(reply.message);
    return reply;
  }
};

class BfclMultiTurn final : public Workload {
 public:
  explicit BfclMultiTurn(int64_t room) : room_(room) {}

  void parameters(ParameterVisitor& p) override {
    p("room", room_)
        .min(kAnswerTokens)
        .max(1 << 20)
        .doc(
            "tokens for all that follows the first answer; a conversation that needs more has failed, as one has that "
            "outgrows a model's window");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    const DataFile file = require_data_file(info(), settings.data_dir);
    auto answers = std::make_shared<BfclAnswers>(read_bfcl_answers(info(), file.root));
    auto descriptions = std::make_shared<Descriptions>(info(), file.root);
    Task task{
        .judge = std::make_shared<BfclJudge>(own_file("bfcl_judge.py")), .room = room_, .tokens = settings.tokens};
    return make_row_source(file, [=, task = std::move(task)](const Row& row, const std::string& place, Sample& sample) {
      fill(row, place, *answers, *descriptions, task, sample);
      return true;
    });
  }

 private:
  static void fill(const Row& row, const std::string& place, const BfclAnswers& answers, Descriptions& descriptions,
                   Task task, Sample& sample) {
    sample.id = string_field(row, "id", place);
    const Row& turns = any_field(row, "question", place);
    const Row& truth = bfcl_answer(answers, sample.id, place);
    require_turns(turns, truth, place);
    const Row entry = with_functions(row, descriptions, place);
    sample.messages = bfcl_messages(entry["function"], turns[0], place);
    sample.question = {sample.messages.size() - 1, 0};
    for (const Row& calls : truth) sample.references.push_back(calls.dump());
    task.prompt = sample.messages.size();
    task.text = Row{{"entry", entry}, {"ground_truth", truth}}.dump();
    sample.live.most_tokens = task.room;
    sample.live.reply = [shared = std::make_shared<const Task>(std::move(task))](std::span<const std::string> said) {
      return shared->reply(said);
    };
  }

  int64_t room_;
};

struct Category {
  const char* name;
  const char* title;
  int64_t room;  // tokens
};

[[maybe_unused]] const bool registered = [] {
  const Category categories[] = {{"base", "calls over several turns that change a state", 4096},
                                 {"long_context", "the same among many files, long results and records", 32768},
                                 {"miss_func", "a function that is only told when it was already needed", 4096},
                                 {"miss_param", "a value that is only told when it was already needed", 4096}};
  for (const Category& category : categories) {
    const std::string file = fmt::format("BFCL_v4_multi_turn_{}.json", category.name);
    std::vector<std::string> fetched = {file, "possible_answer/" + file};
    for (const auto& [name, descriptions] : kDescriptions) {
      fetched.push_back(fmt::format("multi_turn_func_doc/{}", descriptions));
    }
    WorkloadRegistration(
        {.name = fmt::format("bfcl/multi_turn_{}", category.name),
         .family = "bfcl",
         .title = fmt::format("BFCL multi_turn {}: {}; needs bfcl-eval", category.name, category.title),
         .source = kBfclSource,
         .download = bfcl_download(fetched),
         .licence = "Apache-2.0",
         .metrics = {"bfcl_multi_turn"},
         .folder = "bfcl",
         .files = {file},
         .samples = 200,
         .generation = {.max_new_tokens = kAnswerTokens}},
        [room = category.room] { return std::make_unique<BfclMultiTurn>(room); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
