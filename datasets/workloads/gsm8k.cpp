// GSM8K (openai/grade-school-math @3101c7d5): school mathematics in words, answered step by step, after worked examples
// or in a chat as reasoning models are asked.

#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/prompt.h"
#include "datasets/records.h"
#include "datasets/row_source.h"

namespace kvarena::datasets {
namespace {

// The project's own worked examples in the form of the data: reasoning, then "#### N".
constexpr std::array<std::array<const char*, 2>, 4> kExamples = {{
    {"A gardener plants 4 rows of 9 tulips and 5 rows of 6 roses. How many flowers does she plant?",
     "She plants 4 * 9 = 36 tulips.\nShe plants 5 * 6 = 30 roses.\nTogether that is 36 + 30 = 66 flowers.\n#### 66"},
    {"Tom has 50 coins. He gives a fifth of them to Ann and spends 12. How many coins are left?",
     "He gives Ann 50 / 5 = 10 coins.\nThen he has 50 - 10 = 40 coins.\nAfter spending he has 40 - 12 = 28 "
     "coins.\n#### 28"},
    {"A train travels 80 kilometers an hour for 3 hours and then 60 kilometers an hour for 2 hours. How far does it "
     "go?",
     "In the first part it goes 80 * 3 = 240 kilometers.\nIn the second part it goes 60 * 2 = 120 kilometers.\n"
     "In all it goes 240 + 120 = 360 kilometers.\n#### 360"},
    {"A box of 12 eggs costs 3 dollars. How many dollars do 60 eggs cost?",
     "60 eggs are 60 / 12 = 5 boxes.\nThey cost 5 * 3 = 15 dollars.\n#### 15"},
}};

class Gsm8k final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("prompt", prompt_)
        .one_of({"few_shot", "boxed"})
        .doc(
            "a plain text of worked examples, or in a chat to reason step by step and to box the answer, as math_500 "
            "asks");
    p("shots", shots_)
        .min(0)
        .max(kExamples.size())
        .doc("worked examples before the question (the project's own) of the few-shot prompt");
    p("extraction", extraction_)
        .one_of({"official", "last_number"})
        .doc("how the scorer finds the answer: after \"####\", or the last number");
  }

 protected:
  void describe(WorkloadInfo& info) const override {
    if (prompt_ == "few_shot") return;
    info.chat_template = true;
    info.generation.stop = {};
  }

  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    const auto fill = [prompt = prompt_, shots = worked_examples(), extraction = extraction_](
                          const Row& row, const std::string& place, Sample& sample) {
      const std::string question = string_field(row, "question", place);
      if (prompt == "boxed") {
        sample.messages = {{"user", question + std::string(kBoxedAnswer)}};
      } else {
        sample.question = {0, shots.size()};
        sample.messages = {{"user", fmt::format("{}Question: {}\nAnswer:", shots, question)}};
      }
      sample.references = {string_field(row, "answer", place)};
      sample.extras = nlohmann::json{{"extraction", extraction}}.dump();
      return true;
    };
    return make_row_source(require_data_file(info(), settings.data_dir), fill);
  }

 private:
  [[nodiscard]] std::string worked_examples() const {
    std::string shots;
    for (int64_t i = 0; i < shots_; ++i) {
      const auto& example = kExamples[static_cast<size_t>(i)];
      shots.append(fmt::format("Question: {}\nAnswer: {}\n\n", example[0], example[1]));
    }
    return shots;
  }

  std::string prompt_ = "few_shot";
  int64_t shots_ = 4;
  std::string extraction_ = "official";
};

KVARENA_WORKLOAD(Gsm8k, {.name = "gsm8k",
                         .family = "gsm8k",
                         .title = "GSM8K: grade-school mathematics, few-shot or in a chat",
                         .source = "https://github.com/openai/grade-school-math",
                         .download = "curl -L --create-dirs -o $KVARENA_DATA/gsm8k/test.jsonl "
                                     "https://raw.githubusercontent.com/openai/grade-school-math/"
                                     "3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data/test.jsonl",
                         .licence = "MIT",
                         .metrics = {"gsm8k"},
                         .folder = "gsm8k",
                         .files = {"test.jsonl", "test_0-899.jsonl"},
                         .samples = 1319,
                         .chat_template = false,
                         .generation = {.max_new_tokens = 512, .stop = {"Question:"}}});

}  // namespace
}  // namespace kvarena::datasets
