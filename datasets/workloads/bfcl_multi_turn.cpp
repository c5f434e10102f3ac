// BFCL, multi_turn: requests of several turns about files, tickets, posts, orders, cars and flights. The model's calls
// are carried out; a turn ends with an answer that makes none, or after 21. Rows, loop and verdict are the package's
// own (bfcl_judge.h): the states that calls lead to, turn by turn, and what they returned.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/bfcl.h"
#include "datasets/bfcl_judge.h"
#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

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
  Descriptions(WorkloadInfo info, std::filesystem::path root) : info_(std::move(info)), root_(std::move(root)) {}

  const Row& of(const std::string& name, const std::string& place) {
    if (const auto known = read_.find(name); known != read_.end()) return known->second;
    const auto* const file = std::ranges::find(kDescriptions, name, [](const auto& entry) { return entry.first; });
    if (file == kDescriptions.end()) {
      fail({.place = place, .found = fmt::format("the class \"{}\"", name), .expected = "one of multi_turn's eight"});
    }
    return read_[name] = read_bfcl_functions(info_, root_, file->second);
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

class BfclMultiTurn final : public Workload {
 public:
  explicit BfclMultiTurn(int64_t room) : room_(room) {}

  void parameters(ParameterVisitor& p) override {
    p("room", room_)
        .min(BfclConversation::kAnswerTokens)
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
    return make_row_source(file, [=, room = room_, talk = BfclConversation(settings.tokens)](
                                     const Row& row, const std::string& place, Sample& sample) {
      talk.begin(sample, fill(row, place, *answers, *descriptions, sample), room);
      return true;
    });
  }

 private:
  /// Fills what is known before the first answer, and returns the judge's task.
  static Row fill(const Row& row, const std::string& place, const BfclAnswers& answers, Descriptions& descriptions,
                  Sample& sample) {
    sample.id = string_field(row, "id", place);
    const Row& turns = any_field(row, "question", place);
    const Row& truth = bfcl_answer(answers, sample.id, place);
    require_turns(turns, truth, place);
    const Row entry = with_functions(row, descriptions, place);
    sample.messages = bfcl_messages(entry["function"], turns[0], place);
    sample.question = {sample.messages.size() - 1, 0};
    for (const Row& calls : truth) sample.references.push_back(calls.dump());
    return {{"entry", entry}, {"ground_truth", truth}};
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
         .generation = {.max_new_tokens = BfclConversation::kAnswerTokens}},
        [room = category.room] { return std::make_unique<BfclMultiTurn>(room); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
