// LongProc (princeton-pli/LongProc @78e873a): procedures to carry out over 500 to 8,000 tokens of output, in rows as
// its authors publish them and its loader makes them: the whole prompt, the reference output and what the scorer needs
// beside.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/program_judge.h"
#include "datasets/row_source.h"
#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "harness/core/own_files.h"

namespace kvarena::datasets {
namespace {

struct Level {
  const char* name;
  int64_t max_new_tokens;  // example_usage.py
};
constexpr Level kLevels[] = {{"0.5k", 1024}, {"2k", 3072}, {"8k", 9216}};

struct Task {
  const char* name;
  const char* title;
  const char* question;  // begins the problem, at its last place in a prompt; before it are rules, examples and context
  int64_t rows[std::size(kLevels)];  // 0: has no such level
  const char* licence = "Apache-2.0";
};
constexpr Task kTasks[] = {
    {"html_to_tsv",
     "the items of a web page as a table",
     "[TARGET INFORMATION]",
     {100, 189, 120},
     "Apache-2.0; pages as their sources state"},
    {"pseudo_to_code", "C++ of pseudocode, run where KVARENA_RUN_CODE is 1", "[PSEUDOCODE]:", {199, 200, 0}},
    {"path_traversal", "the one route between two of many cities", "Now find the route from", {200, 200, 200}},
    {"tom_tracking", "where a person believes a thing to be, step by step", "[QUESTION]", {200, 200, 200}},
    {"countdown", "a search for operations on numbers that give another", "Numbers:", {200, 200, 200}},
    {"travel_planning", "a search for an order of cities", "YOUR TASK:", {0, 200, 200}}};

std::string name_of(const Task& task, const Level& level) { return fmt::format("{}_{}", task.name, level.name); }

/// Members of a row's metadata, which is JSON in a text.
Row metadata(const Row& row, const std::string& place) {
  Row members = Row::parse(string_field(row, "metadata", place), nullptr, /*allow_exceptions=*/false);
  if (!members.is_object()) {
    fail({.place = place + ": metadata", .found = "another text", .expected = "a JSON object"});
  }
  return members;
}

/// The judge's verdict in the place of an answer.
LiveReply verdict(ProgramJudge& judge, const std::string& tests, const std::string& answer) {
  nlohmann::json record = judge.ask(answer, tests);
  record["answer"] = answer;
  return {.message = "", .record = json_text(record)};
}

using SharedJudge = std::shared_ptr<ProgramJudge>;

bool fill(const Task& task, const SharedJudge& judge, const Row& row, const std::string& place, Sample& sample) {
  std::string prompt = string_field(row, "input_prompt", place);
  const size_t question = prompt.rfind(task.question);
  if (question == std::string::npos) {
    fail({.place = place + ": input_prompt",
          .found = "no problem",
          .expected = fmt::format("\"{}\" before it", task.question)});
  }
  sample.id = string_field(row, "id", place);
  sample.question = {0, question};
  sample.messages = {{"user", std::move(prompt)}};
  sample.references = {string_field(row, "reference_output", place)};
  nlohmann::json extras = {{"task", task.name}};
  const Row members = metadata(row, place);
  for (const char* name : {"nums", "target", "ground_truth_cities", "ground_truth_durations"}) {
    if (members.contains(name)) extras[name] = members[name];
  }
  sample.extras = extras.dump();
  if (members.contains("testcases")) {
    sample.live.reply = [judge, tests = members["testcases"].dump()](std::span<const std::string> answers) {
      return verdict(*judge, tests, answers.back());
    };
  }
  return true;
}

class LongProc final : public Workload {
 public:
  explicit LongProc(const Task& task) : task_(task) {}

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    auto judge = std::make_shared<ProgramJudge>(own_file("program_judge.py"));
    return make_row_source(require_data_file(info(), settings.data_dir),
                           std::bind_front(fill, std::cref(task_), std::move(judge)));
  }

 private:
  const Task& task_;
};

/// The loader's rows of all levels of a task, of what it holds those members that scorers read.
std::string download(const Task& task) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kLevels); ++i) {
    if (task.rows[i] > 0) names.push_back(name_of(task, kLevels[i]));
  }
  return fmt::format(
      "d=$(mktemp -d); git clone -q https://github.com/princeton-pli/LongProc $d; git -C $d checkout -q "
      "78e873ae395e42625fba7942bbb92713de08b2a6; mkdir -p $KVARENA_DATA/longproc; PYTHONPATH=$d python3 -c \"import "
      "json; from longproc.longproc_data import load_longproc_data as load; "
      "[open('$KVARENA_DATA/longproc/%s.jsonl' % name, 'w').writelines(json.dumps(dict(id='%s_%d' % (name, i), "
      "input_prompt=row['input_prompt'], reference_output=row['reference_output'], metadata=json.dumps(dict((k, "
      "row['item'][k]) for k in ('nums', 'target', 'ground_truth_cities', 'ground_truth_durations', 'testcases') if k "
      "in row['item'])))) + '\\n' for i, row in enumerate(load(name, '$d/data')[0])) for name in '{}'.split()]\"; rm "
      "-rf $d",
      fmt::join(names, " "));
}

[[maybe_unused]] const bool registered = [] {
  for (const Task& task : kTasks) {
    for (size_t i = 0; i < std::size(kLevels); ++i) {
      if (task.rows[i] == 0) continue;
      WorkloadRegistration(
          {.name = fmt::format("longproc/{}", name_of(task, kLevels[i])),
           .family = "longproc",
           .title = fmt::format("LongProc {}: {}, to {} tokens", task.name, task.title, kLevels[i].name),
           .source = "https://github.com/princeton-pli/LongProc @78e873a",
           .download = download(task),
           .licence = task.licence,
           .metrics = {"longproc"},
           .folder = "longproc",
           .files = {name_of(task, kLevels[i]) + ".jsonl"},
           .samples = task.rows[i],
           .generation = {.max_new_tokens = kLevels[i].max_new_tokens}},
          [&task] { return std::make_unique<LongProc>(task); });
    }
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
