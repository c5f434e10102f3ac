#include "datasets/bfcl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "datasets/data_files.h"
#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

// constants/default_prompts.py: PROMPT_STYLE_TEMPLATES["classic"] in the plain-text template, filled in as
// formulate_system_prompt() does, whose parts join without a blank at two places.
constexpr const char* kSystem =
    "You are an expert in composing functions.You are given a question and a set of possible functions. Based on the "
    "question, you will need to make one or more function/tool calls to achieve the purpose. If none of the functions "
    "can be used, point it out. If the given question lacks the parameters required by the function, also point it "
    "out.\n\n"
    "You should only return the function calls in your response.\n\n"
    "If you decide to invoke any of the function(s), you MUST put it in the format of "
    "[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)].  "
    "You SHOULD NOT include any other text in the response.\n\n"
    "At each turn, you should try your best to complete the tasks requested by the user within the current turn. "
    "Continue to output functions to call until you have fulfilled the user's request to the best of your ability. "
    "Once you have no more functions to call, the system will consider the current turn complete and proceed to the "
    "next turn or task.\n\n"
    "Here is a list of functions in json format that you can invoke.\n{}\n";
constexpr const char* kHint = " Note that the provided function is in Python 3 syntax.";
constexpr const char* kUrl =
    "https://raw.githubusercontent.com/ShishirPatil/gorilla/6ea57973c7a6097fd7c5915698c54c17c5b1b6c8/"
    "berkeley-function-call-leaderboard/bfcl_eval/data";

}  // namespace

BfclAnswers read_bfcl_answers(WorkloadInfo info, const std::filesystem::path& root) {
  info.folder = "bfcl/possible_answer";
  BfclAnswers answers;
  RecordReader rows(require_data_file(info, root).path);
  while (const auto record = rows.next()) {
    const Row row = parse_object(*record);
    answers[string_field(row, "id", record->place)] = any_field(row, "ground_truth", record->place);
  }
  return answers;
}

const Row& bfcl_answer(const BfclAnswers& answers, const std::string& id, const std::string& place) {
  const auto found = answers.find(id);
  if (found != answers.end()) return found->second;
  fail({.place = place, .found = "no accepted answer for " + id, .expected = "one in possible_answer/"});
}

Row read_bfcl_functions(WorkloadInfo info, const std::filesystem::path& root, const std::string& file) {
  info.folder = "bfcl/multi_turn_func_doc";
  info.files = {file};
  Row functions = Row::array();
  RecordReader rows(require_data_file(info, root).path);
  while (const auto record = rows.next()) functions.push_back(parse_object(*record));
  return functions;
}

Row with_bfcl_hints(Row functions) {
  for (Row& function : functions) function["description"] = function.value("description", "") + kHint;
  return functions;
}

std::vector<Message> bfcl_messages(const Row& functions, const Row& turn, const std::string& place) {
  std::vector<Message> messages = read_messages(turn, place);
  const std::string system = fmt::format(fmt::runtime(kSystem), functions.dump(4, ' ', /*ensure_ascii=*/true));
  if (messages.front().role == "system") {
    messages.front().content = system + "\n\n" + messages.front().content;
  } else {
    messages.insert(messages.begin(), {"system", system});
  }
  return messages;
}

std::vector<ToolResult> bfcl_results(const std::string& message) {
  constexpr std::string_view kBegin = "{'role': 'tool', 'name': ";
  std::vector<ToolResult> results;
  if (!message.starts_with("[") || message.find(kBegin) != 1) return results;
  for (size_t begin = 1; begin != std::string::npos;) {
    const size_t next = message.find(kBegin, begin + 1);
    const size_t end = next == std::string::npos ? message.size() - 1 : next - 2;  // in front of "]", or of ", "
    const size_t name = begin + kBegin.size() + 1;                                 // behind the quote
    results.push_back({.begin = begin, .end = end, .tool = message.substr(name, message.find('(', name) - name)});
    begin = next;
  }
  return results;
}

std::string bfcl_download(const std::vector<std::string>& files) {
  std::vector<std::string> commands;
  for (const std::string& file : files) {
    commands.push_back(fmt::format("curl -L --create-dirs -o $KVARENA_DATA/bfcl/{0} {1}/{0}", file, kUrl));
  }
  return fmt::format("{}", fmt::join(commands, " && "));
}

}  // namespace kvarena::datasets
