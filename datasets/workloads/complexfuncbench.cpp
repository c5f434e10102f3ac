// ComplexFuncBench (THUDM/ComplexFuncBench @c37b284e), teacher-forced: every step of a dialogue in which the golden
// assistant calls functions is one sample, after the golden calls and observations of the steps before it. So a wrong
// call of one step does not spoil the next, and differences between methods come from their caches.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/data_files.h"
#include "datasets/records.h"
#include "datasets/workload.h"
#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

// models/llama.py
constexpr const char* kSystem =
    "Cutting Knowledge Date: December 2023\nToday Date: 23 Jul 2024\n\nWhen you receive a tool call response, use the "
    "output to format an answer to the orginal user question.\n\nYou are a helpful assistant with tool calling "
    "capabilities.";
constexpr const char* kInstruction =
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best "
    "answers the given prompt.\n\nRespond in the format {\"name\": function name, \"parameters\": dictionary of "
    "argument name and its value}. Do not use variables.\n\n";

// Golden calls as the model is asked to write them.
std::string calls_text(const Row& calls, const std::string& place) {
  std::string text;
  for (const Row& call : calls) {
    text.append(text.empty() ? "" : "; ");
    text.append(
        Row{{"name", any_field(call, "name", place)}, {"parameters", any_field(call, "arguments", place)}}.dump());
  }
  return text;
}

class ComplexFuncBenchSource final : public SampleSource {
 public:
  /// `wanted` dialogues, spread over the file: 0 = all.
  ComplexFuncBenchSource(const DataFile& file, int64_t wanted)
      : origin_(file.origin), rows_(file.path), dialogues_(wanted > 0 ? count_records(file.path) : 0) {
    wanted_ = wanted > 0 ? std::min(wanted, dialogues_) : 0;
  }

  bool next(Sample& sample) override {
    while (true) {
      if (!find_step()) {
        const std::optional<Record> record = rows_.next();
        if (!record) return false;
        const int64_t row = row_++;
        if (wanted_ == 0 || (row + 1) * wanted_ / dialogues_ > row * wanted_ / dialogues_) open_dialogue(*record);
        continue;
      }
      const Row& turn = conversation()[turn_];
      const Row& calls = turn.at("function_call");
      sample.id = fmt::format("{}-step-{}", id_, step_++);
      sample.messages = messages_;
      sample.question = {messages_.size() - 1, messages_.size() == 2 ? instruction_bytes_ : 0};
      sample.references = {calls.dump()};
      sample.extras = Row{{"functions", dialogue_["functions"]}}.dump();
      sample.origin = origin_;
      sample.data_sha256 = data_sha256_;
      messages_.push_back({"assistant", calls_text(calls, place_)});
      ++turn_;
      return true;
    }
  }

 private:
  const Row& conversation() const { return dialogue_["conversations"]; }

  void open_dialogue(const Record& record) {
    dialogue_ = parse_object(record);
    place_ = record.place;
    data_sha256_ = sha256(record.text);
    id_ = string_field(dialogue_, "id", place_);
    const Row& functions = any_field(dialogue_, "functions", place_);
    const Row& turns = any_field(dialogue_, "conversations", place_);
    if (!turns.is_array() || turns.empty() || !functions.is_array()) {
      fail({.place = place_,
            .found = "no turns or no functions",
            .expected = "lists in \"conversations\" and \"functions\""});
    }
    std::string first = kInstruction;
    for (const Row& function : functions) first.append(function.dump(4)).append("\n\n");
    instruction_bytes_ = first.size();
    first.append("Question: ").append(string_field(turns[0], "content", place_));
    messages_ = {{"system", kSystem}, {"user", std::move(first)}};
    turn_ = 1;
    step_ = 0;
  }

  // Moves to the next turn with golden calls, adding what lies before it to the history.
  bool find_step() {
    if (dialogue_.is_null()) return false;
    for (; turn_ < conversation().size(); ++turn_) {
      const Row& turn = conversation()[turn_];
      const std::string role = string_field(turn, "role", place_);
      if (role == "assistant" && turn.contains("function_call")) return true;
      if (role == "observation") {
        messages_.push_back({"tool", any_field(turn, "content", place_).dump()});
      } else {
        messages_.push_back({role, string_field(turn, "content", place_)});
      }
    }
    return false;
  }

  std::string origin_;
  RecordReader rows_;
  int64_t dialogues_;  // in the file; 0 where all are wanted
  int64_t wanted_ = 0;
  int64_t row_ = 0;
  Row dialogue_;
  std::string place_;
  std::string data_sha256_;
  std::string id_;
  std::vector<Message> messages_;
  size_t instruction_bytes_ = 0;
  size_t turn_ = 0;
  int64_t step_ = 0;
};

class ComplexFuncBench final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("dialogues", dialogues_)
        .min(0)
        .doc(
            "dialogues to run, each with all its steps, taken evenly from the file, whose domains follow one another; "
            "0 = all");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return std::make_unique<ComplexFuncBenchSource>(require_data_file(info(), settings.data_dir), dialogues_);
  }

 private:
  int64_t dialogues_ = 0;
};

KVARENA_WORKLOAD(
    ComplexFuncBench,
    {.name = "complexfuncbench",
     .family = "complexfuncbench",
     .title = "ComplexFuncBench, teacher-forced: multi-step calls of travel functions",
     .source = "https://huggingface.co/datasets/THUDM/ComplexFuncBench",
     .download = "curl -L --create-dirs -o $KVARENA_DATA/complexfuncbench/ComplexFuncBench.jsonl "
                 "https://huggingface.co/datasets/THUDM/ComplexFuncBench/resolve/main/ComplexFuncBench.jsonl",
     .licence = "Apache-2.0",
     .metrics = {"exact_call_accuracy"},
     .folder = "complexfuncbench",
     .files = {"ComplexFuncBench.jsonl", "synthetic.jsonl"},
     .samples = 1000,
     .generation = {.max_new_tokens = 4096}});

}  // namespace
}  // namespace kvarena::datasets
