// MATH-500 (the test split of openai/prm800k) and AIME: problems of competitions, answered by reasoning of thousands of
// tokens that ends in a boxed answer.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/prompt.h"
#include "datasets/row_source.h"

namespace kvarena::datasets {
namespace {

/// The value of `name`, which some files write with a capital.
std::string text_of(const Row& row, std::string name, const std::string& place) {
  if (!row.contains(name)) {
    std::string capital = name;
    capital[0] = static_cast<char>(capital[0] - 'a' + 'A');
    if (row.contains(capital)) name = capital;
  }
  if (const auto value = row.find(name); value != row.end() && value->is_number_integer()) return value->dump();
  return string_field(row, name.c_str(), place);
}

class CompetitionMath final : public Workload {
 public:
  /// `label` begins a problem in the prompt of lm-evaluation-harness.
  explicit CompetitionMath(std::string label) : label_(std::move(label)) {}

  void parameters(ParameterVisitor& p) override {
    p("prompt", prompt_)
        .one_of({"boxed", "lm_eval"})
        .doc(
            "in a chat, to reason step by step and to box the answer (as DeepSeek-R1's and Qwen2.5-Math's authors "
            "ask), or the plain text of lm-evaluation-harness");
  }

 protected:
  void describe(WorkloadInfo& info) const override {
    if (prompt_ == "boxed") return;
    info.chat_template = false;
    info.generation.stop = {fmt::format("{}:", label_)};
  }

  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    const auto fill = [prompt = prompt_, label = label_](const Row& row, const std::string& place, Sample& sample) {
      const std::string problem = text_of(row, "problem", place);
      sample.messages = {{"user", prompt == "boxed" ? problem + std::string(kBoxedAnswer)
                                                    : fmt::format("{}: {}\nAnswer:", label, problem)}};
      sample.references = {text_of(row, "answer", place)};
      nlohmann::json extras = nlohmann::json::object();
      for (const char* name : {"subject", "level"}) {
        if (const auto value = row.find(name); value != row.end()) extras[name] = *value;
      }
      sample.extras = extras.dump();
      return true;
    };
    return make_row_source(require_data_file(info(), settings.data_dir), fill);
  }

 private:
  std::string label_;
  std::string prompt_ = "boxed";
};

void register_math_500() {
  WorkloadRegistration(
      {.name = "math_500",
       .family = "math_500",
       .title = "MATH-500: 500 problems of school competitions, reasoning of up to 4,096 tokens",
       .source = "https://github.com/openai/prm800k (prm800k/math_splits/test.jsonl)",
       .download = "curl -L --create-dirs -o $KVARENA_DATA/math_500/test.jsonl "
                   "https://media.githubusercontent.com/media/openai/prm800k/7ecc794703b2877f63226f2477a49b34f9b25163"
                   "/prm800k/math_splits/test.jsonl",
       .licence = "MIT",
       .metrics = {"math_answer"},
       .folder = "math_500",
       .files = {"test.jsonl"},
       .samples = 500,
       .generation = {.max_new_tokens = 4096}},
      [] { return std::make_unique<CompetitionMath>("Problem"); });
}

// The 30 problems of a year, from the data set of Hugging Face that evaluations cite for it.
void register_aime(int year, const std::string& data_set, const char* split, const char* licence) {
  const std::string file = fmt::format("aime{}.jsonl", year);
  WorkloadRegistration(
      {.name = fmt::format("aime/{}", year),
       .family = "aime",
       .title = fmt::format("AIME 20{}: 30 problems with integers as answers, reasoning of up to 32,768 tokens", year),
       .source = fmt::format("https://huggingface.co/datasets/{}", data_set),
       .download = fmt::format("python3 -c \"import datasets, os; datasets.load_dataset('{}', split='{}').to_json("
                               "os.environ['KVARENA_DATA'] + '/aime/{}')\"",
                               data_set, split, file),
       .licence = licence,
       .metrics = {"math_answer"},
       .folder = "aime",
       .files = {file},
       .samples = 30,
       .generation = {.max_new_tokens = 32768}},
      [] { return std::make_unique<CompetitionMath>("Question"); });
}

[[maybe_unused]] const bool registered = [] {
  register_math_500();
  register_aime(24, "Maxwell-Jia/AIME_2024", "train", "MIT");
  register_aime(25, "math-ai/aime25", "test", "not stated by the data set");
  register_aime(26, "MathArena/aime_2026", "train", "CC BY-NC-SA 4.0");
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
