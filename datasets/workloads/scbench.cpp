// SCBench (microsoft/MInference @fb56c91, scbench/eval_utils.py): twelve tasks, each a context with several questions
// about it. In the multi-request mode a question follows the context at once; in the multi-turn mode, which `turns`
// asks for, the first one follows a blank line and the others are messages of a chat. Contexts are cut in the middle,
// as there, to what leaves room for all their turns.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/choices.h"
#include "datasets/data_files.h"
#include "datasets/prompt.h"
#include "datasets/python_text.h"
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
  std::map<std::string, int64_t> max_new_tokens;  // by the task of a turn, which rows of mixed tasks name
  int64_t turns;                                  // of all rows, table 2 of arXiv 2412.10319
  const char* preamble;                           // before the context
  const char* question;                           // after it, and after an earlier answer
  const char* later_answers_begin = "";
};

constexpr const char* kRepeatFunction =
    "Based on the function description and code context, please retrieve and repeat the exact described function from "
    "the code context in a code block wrapped by ```:\n\n";

const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {
      {"kv",
       "values of keys in a large JSON object",
       {{"kv", 150}},
       500,
       "Extract the value corresponding to the specified key in the JSON object below.\n\n",
       "{input}"},
      {"prefix_suffix", "strings with a given beginning and end", {{"prefix_suffix", 150}}, 500, "", "{input}"},
      {"vt", "variables that a chain of assignments gives a value", {{"vt", 30}}, 450, "", "{input}"},
      {"repoqa", "functions of a repository by what they do", {{"repoqa", 1024}}, 440, kRepeatFunction, "{input}"},
      {"qa_eng",
       "questions about a novel",
       {{"qa_eng", 40}},
       351,
       "Read the book and answer the question. Be very concise in your answer.\n\n",
       "Question: {input}\nAnswer:"},
      {"qa_chn",
       "questions about a Chinese novel",
       {{"qa_chn", 40}},
       189,
       "阅读以下书籍然后回答问题。\n\n",
       "问题：{input}\n答案："},
      {"choice_eng",
       "questions about a novel, with four options",
       {{"choice_eng", 40}},
       299,
       "Read the book and answer the question.\n\n",
       "Question: {input}\nA. {OPTION_A}\nB. {OPTION_B}\nC. {OPTION_C}\nD. {OPTION_D}\n\nThe the correct answer is"},
      {"many_shot", "answers by hundreds of examples", {{"many_shot", 10}}, 270, "", "{input}"},
      {"summary", "summaries of documents", {{"summary", 200}}, 350, "", "{input}", "This paper"},
      {"mf", "largest, smallest or middle numbers of a list", {{"mf", 5}}, 240, "{asked}\n\n", "{prefix}\n\n{input}"},
      {"summary_with_needles",
       "summaries of documents, and needles in them",
       {{"summary", 800}, {"passkey", 15}},
       560,
       "",
       "{input}"},
      {"repoqa_and_kv",
       "functions of a repository, and values of keys",
       {{"repoqa", 1024}, {"kv", 80}},
       704,
       "",
       "{input}"}};
  return all;
}

constexpr int64_t kTemplateTokens = 32;  // of a turn's place in a chat, at most

/// "What is the largest number?" of "The largest number is": the first match of "The .+ is" in lower case, without
/// its last three characters.
std::string asked_for(const std::string& input, const std::string& place) {
  const size_t begin = input.find("The ");
  const std::string_view line =
      begin == std::string::npos ? "" : std::string_view(input).substr(begin, input.find('\n', begin) - begin);
  const size_t end = line.rfind(" is");
  if (end == std::string_view::npos || end < 5) {
    fail({.place = place, .found = input, .expected = "an input with \"The ... is\""});
  }
  std::string what(line.substr(0, end));
  for (char& c : what) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return fmt::format("What is {}?", what);
}

/// Functions of each repository, as {"name", "needle"}, which the scorer of repoqa chooses among.
std::map<std::string, nlohmann::json> functions_of(const std::filesystem::path& file) {
  std::map<std::string, nlohmann::json> found;
  RecordReader rows(file);
  while (const std::optional<Record> record = rows.next()) {
    const Row row = parse_object(*record);
    for (const Row& turn : any_field(row, "multi_turns", record->place)) {
      if (turn.value("task", "scbench_repoqa") != "scbench_repoqa") continue;
      found[string_field(row, "repo", record->place)].push_back(
          {{"name", string_field(turn, "name", record->place)},
           {"needle", string_field(turn, "answer", record->place)}});
    }
  }
  return found;
}

bool has_slot(const Task& task, std::string_view slot) {
  return std::string_view(task.question).find(slot) != std::string_view::npos;
}

struct Turn {
  std::string question;
  nlohmann::json label;
  std::string told;  // the answer, as later turns have it before them
  std::string part;  // the task of the turn
};

/// The task of a turn, which rows of mixed tasks name.
std::string part_of(const Task& task, const Row& turn, const std::string& place) {
  if (task.max_new_tokens.size() == 1) return task.name;
  const std::string part = string_field(turn, "task", place);
  for (const auto& [name, tokens] : task.max_new_tokens) {
    if (part == "scbench_" + name) return name;
  }
  fail({.place = place + ": task", .found = part, .expected = fmt::format("a task that {} mixes", task.name)});
}

/// `named` is the turn whose words the question of mf begins with.
Turn read_turn(const Task& task, const Row& turn, const Row& named, const std::string& place) {
  const std::string input = string_field(turn, "input", place);
  const std::string prefix = has_slot(task, "{prefix}") ? asked_for(string_field(named, "input", place), place) : "";
  const Row& answer = any_field(turn, "answer", place);
  Turn made{.label = answer, .told = python_text(answer), .part = part_of(task, turn, place)};
  if (made.part == "qa_eng") made.label = nlohmann::json::array({answer});
  std::vector<std::string> options;
  if (has_slot(task, "{OPTION_A}")) {
    options = options_field(turn, place);
    made.label = {made.told, option_letter(options, made.told, place)};
  }
  std::vector<Slot> slots = option_slots(options);
  slots.insert(slots.end(), {{"input", input}, {"prefix", prefix}});
  made.question = render(task.question, slots).text;
  return made;
}

class ScBenchSource final : public SampleSource {
 public:
  ScBenchSource(const Task& task, const DataFile& file, const OpenSettings& settings)
      : task_(&task), origin_(file.origin), rows_(file.path), settings_(settings) {
    if (task.max_new_tokens.contains("repoqa")) functions_ = functions_of(file.path);
  }

  bool next(Sample& sample) override {
    while (next_turn_ == turns_.size()) {
      const std::optional<Record> record = rows_.next();
      if (!record) return false;
      open(parse_object(*record), *record);
    }
    const Turn& turn = turns_[next_turn_];
    sample.id = fmt::format("{}-{}", row_ - 1, next_turn_);
    sample.context = fmt::format("{}", row_ - 1);
    sample.messages = {{"user", context_ + (settings_.turns ? first_question_ : turn.question)}};
    sample.question = {0, context_.size()};
    if (settings_.turns && next_turn_ > 0) {
      sample.follow_up = turn.question;
      sample.answer_prefix = task_->later_answers_begin;
    }
    sample.references = {turn.told};
    sample.extras = extras_[next_turn_].dump();
    sample.generation.max_new_tokens = task_->max_new_tokens.at(turn.part);
    sample.truncation.tokens_removed = removed_;
    sample.origin = origin_;
    sample.data_sha256 = sha256_;
    ++next_turn_;
    return true;
  }

 private:
  void open(const Row& row, const Record& record) {
    turns_.clear();
    extras_.clear();
    next_turn_ = 0;
    ++row_;
    sha256_ = sha256(record.text);
    const Row& turns = any_field(row, "multi_turns", record.place);
    if (!turns.is_array() || turns.empty()) {
      fail({.place = record.place, .found = "multi_turns that is no list of turns", .expected = "at least one turn"});
    }
    for (const Row& turn : turns) {
      // In a chat the official code asks every later question of mf with the words of the last one before it.
      turns_.push_back(read_turn(*task_, turn, settings_.turns ? turns.back() : turn, record.place));
      extras_.push_back(extras(row, turn, turns_.back(), record.place));
    }
    std::string asked = string_field(turns[0], "input", record.place);
    first_question_ = "\n\n" + (has_slot(*task_, "{prefix}") ? asked : turns_[0].question);
    if (has_slot(*task_, "{prefix}") && settings_.turns) asked = asked_for(asked, record.place);
    const Row& context = row.contains("context") ? row["context"] : any_field(row, "input", record.place);
    const std::string preamble = render(task_->preamble, {{"asked", asked}}).text;
    context_ = preamble + cut(python_text(context), preamble);
  }

  /// Collects what the scorer needs: for repoqa the function's name, its language and all functions of the repository.
  [[nodiscard]] nlohmann::json extras(const Row& row, const Row& turn, const Turn& made,
                                      const std::string& place) const {
    nlohmann::json all = {{"task", made.part}, {"label", made.label}};
    if (made.part == "repoqa") {
      all["name"] = string_field(turn, "name", place);
      all["language"] = string_field(row, "lang", place);
      all["functions"] = functions_.at(string_field(row, "repo", place));
    }
    return all;
  }

  /// The context without its middle, where the row's whole conversation is longer than a prompt may be.
  std::string cut(const std::string& context, const std::string& preamble) {
    removed_ = 0;
    if (settings_.max_prompt_tokens == 0 || settings_.tokens == nullptr) return context;
    const TokenCounter& tokens = *settings_.tokens;
    int64_t others = tokens.leading_special_tokens() + std::ssize(tokens.encode(preamble));
    for (const Turn& turn : turns_) {
      others += std::ssize(tokens.encode(turn.question)) + std::ssize(tokens.encode(turn.told)) + kTemplateTokens;
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
  std::map<std::string, nlohmann::json> functions_;  // by repository, of repoqa
  int64_t row_ = 0;                                  // rows read
  std::string context_;                              // the row's, with the preamble
  std::string first_question_;                       // of a conversation
  std::string sha256_;
  int64_t removed_ = 0;  // tokens of the context
  std::vector<Turn> turns_;
  std::vector<nlohmann::json> extras_;  // one a turn
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
  for (const Task& task : tasks()) {
    const auto longest =
        std::ranges::max_element(task.max_new_tokens, {}, [](const auto& part) { return part.second; });
    WorkloadRegistration(
        {.name = fmt::format("scbench/{}", task.name),
         .family = "scbench",
         .title = fmt::format("SCBench {}: {}", task.name, task.title),
         .source = "https://huggingface.co/datasets/microsoft/SCBench",
         .download = fmt::format("python3 -c \"from datasets import load_dataset as load; load('microsoft/SCBench', "
                                 "'scbench_{0}', split='test').to_json('$KVARENA_DATA/scbench/scbench_{0}.jsonl')\"",
                                 task.name),
         .licence = "MIT",
         .metrics = {"scbench"},
         .folder = "scbench",
         .files = {fmt::format("scbench_{}.jsonl", task.name)},
         .samples = task.turns,
         .generation = {.max_new_tokens = longest->second},
         .truncation = TruncationRule::middle_joined},
        [&task] { return std::make_unique<ScBench>(task); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
