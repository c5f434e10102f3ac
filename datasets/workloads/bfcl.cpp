// BFCL, AST part (ShishirPatil/gorilla @6ea57973, bfcl_eval): requests with function descriptions, answered by calls in
// Python form. Prompting mode with the default format: plain text, descriptions as JSON.

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

// constants/default_prompts.py; the last place-holder stands for the descriptions.
constexpr const char* kSystem =
    "You are an expert in composing functions. You are given a question and a set of possible functions. Based on the "
    "question, you will need to make one or more function/tool calls to achieve the purpose.\n"
    "If none of the functions can be used, point it out. If the given question lacks the parameters required by the "
    "function, also point it out.\n"
    "You should only return the function calls in your response.\n\n"
    "If you decide to invoke any of the function(s), you MUST put it in the format of "
    "[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]\n"
    "You SHOULD NOT include any other text in the response.\n\n"
    "At each turn, you should try your best to complete the tasks requested by the user within the current turn. "
    "Continue to output functions to call until you have fulfilled the user's request to the best of your ability. "
    "Once "
    "you have no more functions to call, the system will consider the current turn complete and proceed to the next "
    "turn or task.\n\n"
    "Here is a list of functions in JSON format that you can invoke.\n{}\n";

using Answers = std::map<std::string, Row>;  // by id

Answers accepted_answers(const DataFile& file) {
  Answers answers;
  RecordReader rows(file.path);
  while (const auto record = rows.next()) {
    const Row row = parse_object(*record);
    answers[string_field(row, "id", record->place)] = any_field(row, "ground_truth", record->place);
  }
  return answers;
}

bool fill(const std::string& category, const Answers* answers, const Row& row, const std::string& place,
          Sample& sample) {
  sample.id = string_field(row, "id", place);
  const Row& turns = any_field(row, "question", place);
  if (!turns.is_array() || turns.empty() || !turns[0].is_array() || turns[0].empty()) {
    fail({.place = place,
          .found = "\"question\" without a turn",
          .expected = "a list of turns, each a list of messages"});
  }
  const Row& given = any_field(row, "function", place);
  const Row functions = given.is_array() ? given : Row::array({given});
  Row extras = {{"category", category}, {"function", functions}};
  sample.references = {"[]"};  // irrelevance: right is not to call
  if (answers) {
    const auto accepted = answers->find(sample.id);
    if (accepted == answers->end()) {
      fail({.place = place, .found = "no accepted answer for " + sample.id, .expected = "one in possible_answer/"});
    }
    extras["ground_truth"] = accepted->second;
    sample.references = {accepted->second.dump()};
  }
  sample.extras = extras.dump();
  sample.messages = {{"system", fmt::format(fmt::runtime(kSystem), functions.dump(4))}};
  for (const Row& message : turns[0]) {
    const std::string role = string_field(message, "role", place);
    const std::string content = string_field(message, "content", place);
    if (role == "system") {
      sample.messages[0].content.append("\n\n").append(content);
    } else {
      sample.messages.push_back({role, content});
    }
  }
  sample.question = {sample.messages.size() - 1, 0};
  return true;
}

class Bfcl final : public Workload {
 public:
  explicit Bfcl(std::string category) : category_(std::move(category)) {}

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    const DataFile file = require_data_file(info(), settings.data_dir);
    std::shared_ptr<Answers> answers;
    if (category_ != "irrelevance") {
      WorkloadInfo accepted = info();
      accepted.folder = "bfcl/possible_answer";
      answers = std::make_shared<Answers>(accepted_answers(require_data_file(accepted, file.root)));
    }
    return make_row_source(file,
                           [answers, category = category_](const Row& row, const std::string& place, Sample& sample) {
                             return fill(category, answers.get(), row, place, sample);
                           });
  }

 private:
  std::string category_;
};

struct Category {
  const char* name;  // as the scorer names it
  const char* file;
  const char* title;
  int64_t rows;
};

[[maybe_unused]] const bool registered = [] {
  constexpr const char* kUrl =
      "https://raw.githubusercontent.com/ShishirPatil/gorilla/6ea57973c7a6097fd7c5915698c54c17c5b1b6c8/"
      "berkeley-function-call-leaderboard/bfcl_eval/data";
  const Category categories[] = {
      {"simple", "BFCL_v4_simple_python", "one call, one function offered", 400},
      {"multiple", "BFCL_v4_multiple", "one call, several functions offered", 200},
      {"parallel", "BFCL_v4_parallel", "several calls of one function", 200},
      {"parallel_multiple", "BFCL_v4_parallel_multiple", "several calls of several functions", 200},
      {"irrelevance", "BFCL_v4_irrelevance", "no function fits", 240}};
  for (const Category& category : categories) {
    const std::string file = category.file;
    std::string download = fmt::format("curl -L --create-dirs -o $KVARENA_DATA/bfcl/{0}.json {1}/{0}.json", file, kUrl);
    if (std::string_view(category.name) != "irrelevance") {
      download += fmt::format(
          " && curl -L --create-dirs -o $KVARENA_DATA/bfcl/possible_answer/{0}.json {1}/possible_answer/{0}.json", file,
          kUrl);
    }
    WorkloadRegistration({.name = fmt::format("bfcl/{}", category.name),
                          .family = "bfcl",
                          .title = fmt::format("BFCL {}: {}", category.name, category.title),
                          .source = "https://github.com/ShishirPatil/gorilla (berkeley-function-call-leaderboard)",
                          .download = std::move(download),
                          .licence = "Apache-2.0",
                          .metrics = {"bfcl_ast"},
                          .folder = "bfcl",
                          .files = {file + ".json", file + ".jsonl"},
                          .samples = category.rows,
                          .generation = {.max_new_tokens = 512}},
                         [name = std::string(category.name)] { return std::make_unique<Bfcl>(name); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
