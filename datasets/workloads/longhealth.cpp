// LongHealth (kbressem/LongHealth, task 1): the letters about an invented patient and twenty questions with five
// options about them, in the authors' words. The authors shuffle a patient's letters for each question; here they keep
// the order of the file, so that all questions share one context.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/context_rows.h"
#include "datasets/python_text.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

constexpr const char* kSystem =
    "\nYou are a highly skilled and detail-oriented assistant, specifically trained to assist medical professionals in "
    "interpreting and extracting key information from medical documents. Your primary responsibility will be to "
    "analyze discharge letters from hospitals. When you receive one or more of these letters, you will be expected to "
    "carefully review the contents and accurately answer multiple-choice questions related to these documents. "
    "\n\nYour answers should be:\n1. Accurate: Make sure your answers are based on the information provided in the "
    "letters.\n2. Concise: Provide brief and direct answers without unnecessary elaboration.\n3. Contextual: Consider "
    "the context and specifics of each question to provide the most relevant information.\n\nRemember, your job is to "
    "streamline the physician's decision-making process by providing them with accurate and relevant information from "
    "discharge summaries. Efficiency and reliability are key.\n";
constexpr const char* kSeparator = "\n\n--------------\n\n";
constexpr const char* kQuestion =
    "\n\n--------------END DOCUMENTS--------------\n\n{}\n{}\n\nPlease answer using the following format:\n1. Begin "
    "your answer with the phrase \"The correct answer is\".\n2. State the letter of the correct option (e.g., A, B, C, "
    "D, E).\n3. Follow the letter with a colon and the exact text of the option you chose.\n4. Make sure your answer "
    "is a single, concise sentence.\n\nFor example, if the correct answer to a question is option C, and the text for "
    "C is 'Acute Bronchitis', your answer should be: \n'The correct answer is C: Acute bronchitis.'\n";

std::vector<Sample> expand(const Row& row, const std::string& place, const Sample& sample) {
  std::vector<std::string> letters, questions, right;
  std::vector<std::vector<std::string>> choices;
  for (const auto& [name, letter] : any_field(row, "texts", place).items()) letters.push_back(python_text(letter));
  for (const Row& asked : any_field(row, "questions", place)) {
    std::string options;
    std::vector<std::string>& texts = choices.emplace_back();
    const std::string correct = string_field(asked, "correct", place);
    for (const char letter : std::string_view("abcde")) {
      texts.push_back(string_field(asked, fmt::format("answer_{}", letter).c_str(), place));
      const char shown = static_cast<char>(letter - 'a' + 'A');
      options += fmt::format("{}{}: {}", options.empty() ? "" : "\n", shown, texts.back());
      if (texts.back() == correct && right.size() < choices.size()) right.emplace_back(1, shown);
    }
    if (right.size() < choices.size()) {
      fail({.place = place + ": correct",
            .found = fmt::format("\"{}\"", correct),
            .expected = "one of the five answers"});
    }
    questions.push_back(fmt::format(kQuestion, string_field(asked, "question", place), options));
  }
  const std::string context =
      fmt::format("\n--------------BEGIN DOCUMENTS--------------\n\n{}", fmt::join(letters, kSeparator));
  std::vector<Sample> samples = share_context(sample, context, questions);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].messages.insert(samples[i].messages.begin(), {"system", kSystem});
    samples[i].question.message = 1;
    samples[i].references = {right[i]};
    samples[i].extras = nlohmann::json{{"choices", choices[i]}}.dump();
  }
  return samples;
}

class LongHealth final : public Workload {
 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_context_source(require_data_file(info(), settings.data_dir), expand);
  }
};

KVARENA_WORKLOAD(LongHealth,
                 {.name = "longhealth",
                  .family = "longhealth",
                  .title = "LongHealth: questions about a patient's letters, with five options",
                  .source = "https://github.com/kbressem/LongHealth",
                  .download = "mkdir -p $KVARENA_DATA/longhealth; curl -L https://raw.githubusercontent.com/kbressem/"
                              "LongHealth/main/data/benchmark_v5.json | python3 -c \"import json, sys; "
                              "[print(json.dumps(patient)) for patient in json.load(sys.stdin).values()]\" > "
                              "$KVARENA_DATA/longhealth/benchmark_v5.jsonl",
                  .licence = "Apache-2.0",
                  .metrics = {"longhealth", "multiple_choice"},
                  .folder = "longhealth",
                  .files = {"benchmark_v5.jsonl"},
                  .samples = 400,
                  .generation = {.max_new_tokens = 50}});

}  // namespace
}  // namespace kvarena::datasets
