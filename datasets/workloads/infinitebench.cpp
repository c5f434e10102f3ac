// InfiniteBench (OpenBMB/InfiniteBench @88b3daa6): the generated tasks, with the prompts for open models.

#include <fmt/format.h>

#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/prompt.h"
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
     "of "
     "{func_call}. The value of {func_call} is"}};

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

std::string as_text(const Row& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

bool fill(const Task& task, const Row& row, const std::string& place, Sample& sample) {
  const std::string name = task.name;
  const std::string context = string_field(row, "context", place);
  const std::string input = string_field(row, "input", place);
  const std::string prefix =
      name == "math_find" ? fmt::format("What is {} in the following list?", math_target(input, place)) : "";
  const std::string call = name == "code_run" ? function_call(input, place) : "";
  Rendered prompt = render(task.prompt, {{"context", context},
                                         {"input", input},
                                         {"prefix", prefix},
                                         {"func", call.substr(0, call.find('('))},
                                         {"func_call", call}});
  sample.id = as_text(any_field(row, "id", place));
  sample.messages = {{"user", std::move(prompt.text)}};
  sample.question = {0, prompt.question};
  const Row& answer = any_field(row, "answer", place);
  if (answer.is_array()) {
    for (const Row& one : answer) sample.references.push_back(as_text(one));
  } else {
    sample.references = {as_text(answer)};
  }
  sample.extras = nlohmann::json{{"task", name}, {"label", answer}}.dump();
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
                          .truncation = TruncationRule::middle_halves},
                         [&task] { return std::make_unique<InfiniteBench>(task); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
