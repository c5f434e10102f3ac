// GSM8K-Long (Dominic789654/LongGenBench @98458646): K questions of GSM8K in one request after eight worked examples,
// answered one after another.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/data_files.h"
#include "datasets/records.h"
#include "datasets/workload.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

constexpr const char* kSystem =
    "Answer each question step by step, adhering to the format shown in the examples provided. Start each response "
    "with 'Answer_' and introduce the final response with 'The answer is'. Do not repeat the question. Ensure that you "
    "respond to all the questions presented, regardless of their number.";

class Gsm8kLongSource final : public SampleSource {
 public:
  Gsm8kLongSource(const DataFile& rows, const DataFile& examples, int64_t questions)
      : origin_(rows.origin), rows_(rows.path), examples_(read_file(examples.path)), questions_(questions) {}

  bool next(Sample& sample) override {
    std::string asked;
    std::string raw;
    nlohmann::json questions = nlohmann::json::array();
    for (int64_t i = 0; i < questions_; ++i) {
      const std::optional<Record> record = rows_.next();
      if (!record) break;
      const Row row = parse_object(*record);
      const std::string question = string_field(row, "question", record->place);
      asked.append(fmt::format("Question_{}:\n{}\n", i + 9, question));  // the examples are numbered 1 to 8
      questions.push_back(question);
      sample.references.push_back(string_field(row, "answer", record->place));
      raw.append(record->text).append("\n");
    }
    if (sample.references.empty()) return false;
    std::string prompt = fmt::format("Examples: \n{}\n\nFollowing Question: \n", examples_);
    sample.question = {1, prompt.size()};
    prompt.append(asked).append("\n");
    sample.id = fmt::format("{}", made_++);
    sample.messages = {{"system", kSystem}, {"user", std::move(prompt)}};
    sample.extras = nlohmann::json{{"questions", std::move(questions)}}.dump();
    sample.origin = origin_;
    sample.data_sha256 = sha256(raw);
    return true;
  }

 private:
  std::string origin_;
  RecordReader rows_;
  std::string examples_;
  int64_t questions_;
  int64_t made_ = 0;
};

class Gsm8kLong final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("questions", questions_).min(1).doc("questions in one request; the last request of a file may have fewer");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    DataFile questions = require_data_file(info(), settings.data_dir);
    WorkloadInfo examples = info();
    examples.folder = "longgenbench-gsm8k";
    examples.files = {"LongGenBench_prompt.txt"};
    examples.source = "https://github.com/Dominic789654/LongGenBench";
    DataFile prompt = require_data_file(examples, questions.root);
    return std::make_unique<Gsm8kLongSource>(std::move(questions), std::move(prompt), questions_);
  }

 private:
  int64_t questions_ = 4;
};

KVARENA_WORKLOAD(Gsm8kLong,
                 {.name = "gsm8k-long",
                  .family = "gsm8k",
                  .title = "GSM8K-Long: several questions of GSM8K in one request",
                  .source = "https://github.com/openai/grade-school-math",
                  .download = "curl -L --create-dirs -o $KVARENA_DATA/gsm8k/test.jsonl "
                              "https://raw.githubusercontent.com/openai/grade-school-math/"
                              "3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data/test.jsonl && "
                              "curl -L --create-dirs "
                              "-o $KVARENA_DATA/longgenbench-gsm8k/LongGenBench_prompt.txt "
                              "https://raw.githubusercontent.com/Dominic789654/LongGenBench/"
                              "98458646ced747ca81a2d3023213a00a70cd7694/data/LongGenBench_GSM8K_prompt/"
                              "LongGenBench_prompt.txt",
                  .licence = "MIT",
                  .metrics = {"gsm8k_long"},
                  .folder = "gsm8k",
                  .files = {"test.jsonl", "test_0-899.jsonl"},
                  .samples = 330,
                  .generation = {.max_new_tokens = 4096}});

}  // namespace
}  // namespace kvarena::datasets
