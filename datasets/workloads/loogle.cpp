// LooGLE (bigai-nlco/LooGLE @6734382): documents of after 2022, several questions about each, in the official prompts
// and cut in the middle as its evaluation of open models does.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/context_rows.h"
#include "datasets/prompt.h"
#include "datasets/python_text.h"
#include "datasets/records.h"

namespace kvarena::datasets {
namespace {

struct Task {
  const char* name;
  const char* title;
  const char* metric;
  int64_t max_new_tokens;  // config/task2maxlen.json
  int64_t rows;
  const char* before;  // the text, config/task2prompt.json
  const char* behind;
};

constexpr const char* kAnswer = "Please answer the question based on the long texts below. \n";
constexpr Task kTasks[] = {
    {"shortdep_qa", "questions whose answer is in one place", "loogle", 300, 1951, kAnswer,
     "\nQuestion: {Q}\nAnswer: "},
    {"longdep_qa", "questions over several places", "loogle", 500, 1101, kAnswer, "\nQuestion: {Q}\nAnswer: "},
    {"longdep_summarization", "summaries of papers", "loogle", 500, 516,
     "Please generate a summary of the below paper. \n", "\n Summarization: "},
    {"shortdep_cloze", "masked entities of a summary", "loogle_cloze", 50, 2880,
     "Please fill in the clozes based on the given long texts below. Each of the placeholder '<mask-n>' in the "
     "question could be an entity of Person, Location or Organiocation. The same masks represent the same entity. "
     "Output a json format answer, for example: {'<mask-0>': 'Bob', '<mask-1>': 'Gorrosion Magazine','<mask-2>': "
     "'Bethel Horizon'}\n",
     "\n Question: {Q} What are the masked entities? \nAnswer:"}};

std::vector<Sample> expand(const Task& task, const Row& row, const std::string& place, const Sample& sample) {
  const std::string context = task.before + string_field(row, "input", place);
  std::vector<std::string> questions;
  std::vector<Row> answers;
  const Row& pairs = any_field(row, "qa_pairs", place);
  if (pairs.is_array()) {
    for (const Row& pair : pairs) {
      questions.push_back(render(task.behind, {{"Q", string_field(pair, "Q", place)}}).text);
      answers.push_back(any_field(pair, "A", place));
    }
  } else {
    questions = {task.behind};
    answers = {any_field(row, "output", place)};
  }
  std::vector<Sample> samples = share_context(sample, context, questions);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].references = {answers[i].is_object() ? answers[i].dump() : python_text(answers[i])};
  }
  return samples;
}

class LooGle final : public Workload {
 public:
  explicit LooGle(const Task& task) : task_(task) {}

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_context_source(require_data_file(info(), settings.data_dir), std::bind_front(expand, std::cref(task_)));
  }

 private:
  const Task& task_;
};

[[maybe_unused]] const bool registered = [] {
  for (const Task& task : kTasks) {
    WorkloadRegistration(
        {.name = fmt::format("loogle/{}", task.name),
         .family = "loogle",
         .title = fmt::format("LooGLE {}: {}", task.name, task.title),
         .source = "https://huggingface.co/datasets/bigainlco/LooGLE",
         // Lists of questions are texts of Python there; they become JSON.
         .download = fmt::format(
             "mkdir -p $KVARENA_DATA/loogle; python3 -c \"import ast, datasets, json; [print(json.dumps(dict(row, "
             "qa_pairs=row['qa_pairs'] if row['qa_pairs'] == 'none' else ast.literal_eval(row['qa_pairs'])))) for row "
             "in datasets.load_dataset('bigainlco/LooGLE', '{0}', split='test')]\" > $KVARENA_DATA/loogle/{0}.jsonl",
             task.name),
         .licence = "MIT (repository); texts as their sources state",
         .metrics = {task.metric},
         .folder = "loogle",
         .files = {fmt::format("{}.jsonl", task.name)},
         .samples = task.rows,
         .chat_template = false,
         .generation = {.max_new_tokens = task.max_new_tokens},
         .truncation = TruncationRule::middle_halves},
        [&task] { return std::make_unique<LooGle>(task); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
