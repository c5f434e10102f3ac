// InfiniteBench (OpenBMB/InfiniteBench @88b3daa6): all twelve tasks, with the prompts for open models.

#include <fmt/format.h>

#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/choices.h"
#include "datasets/prompt.h"
#include "datasets/python_text.h"
#include "datasets/records.h"
#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

struct Task {
  const char* name;
  const char* title;
  int64_t max_new_tokens;
  int64_t rows;
  const char* prompt;  // src/prompt.py, model family yarn-mistral
};

constexpr Task kTasks[] = {
    {"passkey", "a five-digit key in repeated sentences", 6, 590,
     "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you "
     "about the important information.\n\n{context}\n\n{input}\n\nThe pass key is"},
    {"number_string", "a ten-digit sequence in repeated sentences", 12, 590,
     "There is an important info hidden inside a lot of irrelevant text. Find it. I will quiz you about the important "
     "information there.\n\n{context}\n\n{input}\n\nThe sequence of digits is"},
    {"kv_retrieval", "the value of a key in a large JSON object", 50, 500,
     "Extract the value corresponding to the specified key in the JSON object below.\n\n{context}\n\n{input}"},
    {"math_find", "the largest, smallest or middle number of a list", 3, 350, "{prefix}\n\n{context}\n\n{input}"},
    {"code_run", "the value of a function that calls others", 5, 400,
     "There is a function called {func} in the following Python code.\n\n{context}\n\nPlease compute the exact value "
     "of {func_call}. The value of {func_call} is"},
    {"code_debug", "the one function of a repository that crashes", 5, 394,
     "Following is a Python code where exactly one of the functions/methods has a deliberate error that makes it "
     "crash.\n\n{context}\n\nOptions:\nA. {OPTION_A}\nB. {OPTION_B}\nC. {OPTION_C}\nD. {OPTION_D}\n\nThe correct "
     "option is:"},
    {"math_calc", "the running values of a long sum", 30000, 50,
     "Let us calculate the intermediate values of an expression.\n\nExpression: 1 + 3 + 4\nValues: [1, 4, "
     "8]\n\nExpression: 8 - 3 + 2 - 4\nValues: [8, 5, 7, 3]\n\nExpression: {context}\nValues:"},
    {"longbook_sum_eng", "a summary of a novel", 1200, 103, "Summarize the book below.\n\n{context}\n\nSummary:"},
    {"longbook_qa_eng", "a question about a novel", 40, 351,
     "Read the book and answer the question. Be very concise in your answer.\n\n{context}\n\nQuestion: "
     "{input}\nAnswer:"},
    {"longbook_choice_eng", "a question about a novel, with four options", 40, 229,
     "Read the book and answer the question.\n\n{context}\n\nQuestion: {input}\nA. {OPTION_A}\nB. {OPTION_B}\nC. "
     "{OPTION_C}\nD. {OPTION_D}\n\nThe letter of the correct answer is"},
    {"longbook_qa_chn", "a question about a Chinese novel", 40, 189,
     "阅读以下书籍然后回答问题。\n\n{context}\n\n问题：{input}\n答案："},
    {"longdialogue_qa_eng", "whose name is masked in a script", 40, 200,
     "Below is a dialogue script where one random occurrence of a character name is replaced with \"$$MASK$$\", and "
     "you should try to guess who that character is.\n\n{context}\n\nThe name that has been replaced with $$MASK$$ is "
     "likely"}};

// First match of "The .+ of" in lower case without its last three characters: "the largest number".
std::string math_target(const std::string& input, const std::string& place) {
  const size_t begin = input.find("The ");
  const size_t end = begin == std::string::npos ? begin : std::min(input.find('\n', begin), input.size());
  const size_t of = end == std::string::npos ? end : input.substr(0, end).rfind(" of");
  if (of == std::string::npos || of < begin + 4) {
    fail({.place = place, .found = input, .expected = "an input with \"The ... of\""});
  }
  std::string target = input.substr(begin, of - begin);
  for (char& c : target) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return target;
}

// First match of func_[0-9]+\(\-?[0-9]+\)
std::string function_call(const std::string& input, const std::string& place) {
  const auto digits = [&](size_t at) {
    while (at < input.size() && std::isdigit(static_cast<unsigned char>(input[at]))) ++at;
    return at;
  };
  for (size_t at = input.find("func_"); at != std::string::npos; at = input.find("func_", at + 1)) {
    const size_t name_end = digits(at + 5);
    if (name_end == at + 5 || name_end >= input.size() || input[name_end] != '(') continue;
    const size_t number = name_end + 1 + (input.substr(name_end + 1, 1) == "-" ? 1 : 0);
    const size_t end = digits(number);
    if (end > number && end < input.size() && input[end] == ')') return input.substr(at, end + 1 - at);
  }
  fail({.place = place, .found = input, .expected = "an input with a call such as func_5(-1)"});
}

/// The answer; where there are options, with its letter (get_answer of src/eval_utils.py).
Row label_of(const Row& row, const std::vector<std::string>& options, const std::string& place) {
  const Row& answer = any_field(row, "answer", place);
  if (options.empty() || (answer.is_array() && answer.size() == 2)) return answer;
  const std::string text = python_text(answer.is_array() && !answer.empty() ? answer[0] : answer);
  return Row::array({text, option_letter(options, text, place)});
}

bool fill(const Task& task, const Row& row, const std::string& place, Sample& sample) {
  const std::string name = task.name;
  const std::string context = python_text(any_field(row, "context", place));
  const std::string input = string_field(row, "input", place);
  const std::string prefix =
      name == "math_find" ? fmt::format("What is {} in the following list?", math_target(input, place)) : "";
  const std::string call = name == "code_run" ? function_call(input, place) : "";
  const bool chooses = std::string_view(task.prompt).find("{OPTION_A}") != std::string_view::npos;
  const auto options = chooses ? options_field(row, place) : std::vector<std::string>{};
  std::vector<Slot> slots = option_slots(options);
  slots.insert(slots.end(), {{"context", context},
                             {"input", input},
                             {"prefix", prefix},
                             {"func", std::string_view(call).substr(0, call.find('('))},
                             {"func_call", call}});
  Rendered prompt = render(task.prompt, slots);
  sample.id = python_text(any_field(row, "id", place));
  sample.messages = {{"user", std::move(prompt.text)}};
  sample.question = {0, prompt.question};
  const Row label = label_of(row, options, place);
  if (label.is_array()) {
    for (const Row& one : label) sample.references.push_back(python_text(one));
  } else {
    sample.references = {python_text(label)};
  }
  sample.extras = nlohmann::json{{"task", name}, {"label", label}}.dump();
  return true;
}

class InfiniteBench final : public Workload {
 public:
  explicit InfiniteBench(const Task& task) : task_(task) {}

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir), std::bind_front(fill, std::cref(task_)));
  }

 private:
  const Task& task_;
};

[[maybe_unused]] const bool registered = [] {
  for (const Task& task : kTasks) {
    WorkloadRegistration({.name = fmt::format("infinitebench/{}", task.name),
                          .family = "infinitebench",
                          .title = fmt::format("InfiniteBench {}: {}", task.name, task.title),
                          .source = "https://huggingface.co/datasets/xinrongzhang2022/InfiniteBench",
                          .download = fmt::format(
                              "curl -L --create-dirs -o $KVARENA_DATA/infinitebench/{0}.jsonl "
                              "https://huggingface.co/datasets/xinrongzhang2022/InfiniteBench/resolve/main/{0}.jsonl",
                              task.name),
                          .licence = "Apache-2.0",
                          .metrics = {"infinitebench"},
                          .folder = "infinitebench",
                          .files = {fmt::format("{}.jsonl", task.name)},
                          .samples = task.rows,
                          .chat_template = false,
                          .generation = {.max_new_tokens = task.max_new_tokens},
                          .truncation = TruncationRule::middle_joined},
                         [&task] { return std::make_unique<InfiniteBench>(task); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
