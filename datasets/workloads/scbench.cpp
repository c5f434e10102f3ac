// SCBench (microsoft/MInference @fb56c91, scbench/eval_utils.py): contexts with several questions about each, in the
// official row format. Templates are those of its multi-turn mode; a later turn asks without the preamble. Contexts are
// cut in the middle, as there, to what leaves room for all their turns. Tasks whose official scores other metrics give.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/data_files.h"
#include "datasets/prompt.h"
#include "datasets/records.h"
#include "datasets/truncation.h"
#include "datasets/workload.h"
#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

struct Task {
  const char* name;
  const char* title;
  int64_t max_new_tokens;
  int64_t contexts;
  const char* metric;
  const char* preamble;  // before the context
  const char* question;  // after it, and after an earlier answer
};

constexpr Task kTasks[] = {
    {"kv", "values of keys in a large JSON object", 150, 100, "string_match_all",
     "Extract the value corresponding to the specified key in the JSON object below.\n\n", "\n\n{input}"},
    {"prefix_suffix", "strings with a given beginning and end", 150, 100, "string_match_all", "", "\n\n{input}"},
    {"qa_eng", "questions about a novel", 40, 69, "string_match_part",
     "Read the book and answer the question. Be very concise in your answer.\n\n", "\n\nQuestion: {input}\nAnswer:"}};

constexpr int64_t kTemplateTokens = 32;  // of a turn's place in a chat, at most

struct Turn {
  std::string question;
  std::string answer;
};

class ScBenchSource final : public SampleSource {
 public:
  ScBenchSource(const Task& task, const DataFile& file, const OpenSettings& settings)
      : task_(&task), origin_(file.origin), rows_(file.path), settings_(settings) {}

  bool next(Sample& sample) override {
    while (next_turn_ == turns_.size()) {
      const std::optional<Record> record = rows_.next();
      if (!record) return false;
      open(parse_object(*record), *record);
    }
    const Turn& turn = turns_[next_turn_];
    sample.id = fmt::format("{}-{}", row_ - 1, next_turn_++);
    sample.context = fmt::format("{}", row_ - 1);
    sample.messages = {{"user", context_ + turn.question}};
    sample.question = {0, context_.size()};
    sample.references = {turn.answer};
    sample.truncation.tokens_removed = removed_;
    sample.origin = origin_;
    sample.data_sha256 = sha256_;
    return true;
  }

 private:
  void open(const Row& row, const Record& record) {
    turns_.clear();
    next_turn_ = 0;
    ++row_;
    sha256_ = sha256(record.text);
    const Row& turns = any_field(row, "multi_turns", record.place);
    if (!turns.is_array() || turns.empty()) {
      fail({.place = record.place, .found = "multi_turns that is no list of turns", .expected = "at least one turn"});
    }
    for (const Row& turn : turns) {
      const std::string input = string_field(turn, "input", record.place);
      turns_.push_back({.question = render(task_->question, {{"input", input}}).text,
                        .answer = string_field(turn, "answer", record.place)});
    }
    context_ = task_->preamble + cut(string_field(row, "context", record.place));
  }

  /// The context without its middle, where the row's whole conversation is longer than a prompt may be.
  std::string cut(const std::string& context) {
    removed_ = 0;
    if (settings_.max_prompt_tokens == 0 || settings_.tokens == nullptr) return context;
    const TokenCounter& tokens = *settings_.tokens;
    int64_t others = tokens.leading_special_tokens() + std::ssize(tokens.encode(task_->preamble));
    for (const Turn& turn : turns_) {
      others += std::ssize(tokens.encode(turn.question)) + std::ssize(tokens.encode(turn.answer)) + kTemplateTokens;
    }
    std::vector<int32_t> ids = tokens.encode(context);
    const MiddleCut kept = middle_cut(ids.size(), settings_.max_prompt_tokens - others, TruncationRule::middle_joined);
    removed_ = std::ssize(ids) - static_cast<int64_t>(kept.head + kept.tail);
    if (removed_ == 0) return context;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(kept.head), ids.end() - static_cast<std::ptrdiff_t>(kept.tail));
    return tokens.decode(ids);
  }

  const Task* task_;
  std::string origin_;
  RecordReader rows_;
  OpenSettings settings_;
  int64_t row_ = 0;      // rows read
  std::string context_;  // the row's, with the preamble
  std::string sha256_;
  int64_t removed_ = 0;  // tokens of the context
  std::vector<Turn> turns_;
  size_t next_turn_ = 0;
};

class ScBench final : public Workload {
 public:
  explicit ScBench(const Task& task) : task_(task) {}

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return std::make_unique<ScBenchSource>(task_, require_data_file(info(), settings.data_dir), settings);
  }

 private:
  const Task& task_;
};

[[maybe_unused]] const bool registered = [] {
  constexpr int64_t kTurns = 5;  // of most rows
  for (const Task& task : kTasks) {
    WorkloadRegistration(
        {.name = fmt::format("scbench/{}", task.name),
         .family = "scbench",
         .title = fmt::format("SCBench {}: {}", task.name, task.title),
         .source = "https://huggingface.co/datasets/microsoft/SCBench",
         .download = fmt::format("python3 -c \"from datasets import load_dataset as load; load('microsoft/SCBench', "
                                 "'scbench_{0}', split='test').to_json('$KVARENA_DATA/scbench/scbench_{0}.jsonl')\"",
                                 task.name),
         .licence = "MIT",
         .metrics = {task.metric},
         .folder = "scbench",
         .files = {fmt::format("scbench_{}.jsonl", task.name)},
         .samples = kTurns * task.contexts,
         .generation = {.max_new_tokens = task.max_new_tokens},
         .truncation = TruncationRule::middle_joined},
        [&task] { return std::make_unique<ScBench>(task); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
