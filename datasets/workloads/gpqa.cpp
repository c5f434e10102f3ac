// GPQA (Rein et al. 2023), in the words of lm-evaluation-harness 0.4.9 (gpqa_*_cot_zeroshot): questions of graduates
// with four options, reasoned about before they are answered. The data set asks its readers to keep it off the open
// web, so it is downloaded by those whom its page has let in.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/choices.h"
#include "datasets/draw.h"
#include "datasets/prompt.h"
#include "datasets/python_text.h"
#include "datasets/row_source.h"

namespace kvarena::datasets {
namespace {

constexpr const char* kPrompt =
    "What is the correct answer to this question:{question}\nChoices:\n(A) {OPTION_A}\n(B) {OPTION_B}\n(C) "
    "{OPTION_C}\n(D) {OPTION_D}\nLet's think step by step: ";

/// The option as the harness shows it: stripped, without what is in brackets, double blanks halved.
std::string shown(const Row& row, const char* field, const std::string& place) {
  std::string text = replace_all(strip(string_field(row, field, place)), " [title]", ". ");
  for (size_t open = text.find('['); open != std::string::npos;) {
    const size_t end = text.find_first_of("]\n", open);
    const bool closed = end != std::string::npos && text[end] == ']';
    if (closed) text.erase(open, end + 1 - open);
    open = text.find('[', closed ? open : open + 1);
  }
  return replace_all(std::move(text), "  ", " ");
}

bool fill(int64_t seed, const Row& row, const std::string& place, Sample& sample) {
  const std::string right = shown(row, "Correct Answer", place);
  std::vector<std::string> options = {shown(row, "Incorrect Answer 1", place), shown(row, "Incorrect Answer 2", place),
                                      shown(row, "Incorrect Answer 3", place), right};
  // The harness shuffles with whatever state Python's generator is in.
  Draw draw(static_cast<uint64_t>(seed), "gpqa " + sample.id);
  draw.shuffle(options);
  std::vector<Slot> slots = option_slots(options);
  const std::string question = string_field(row, "Question", place);
  slots.push_back({"question", question});
  sample.messages = {{"user", render(kPrompt, slots).text}};
  sample.references = {option_letter(options, right, place)};
  sample.extras = nlohmann::json{{"choices", options}}.dump();
  return true;
}

class Gpqa final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override { p("seed", seed_).min(0).doc("seed of the order of the options"); }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir), std::bind_front(fill, seed_));
  }

 private:
  int64_t seed_ = 1;
};

[[maybe_unused]] const bool registered = [] {
  for (const auto& [set, rows] : {std::pair<const char*, int64_t>{"diamond", 198}, {"main", 448}, {"extended", 546}}) {
    WorkloadRegistration(
        {.name = fmt::format("gpqa/{}", set),
         .family = "gpqa",
         .title = fmt::format("GPQA {}: questions of graduates with four options, reasoning before the answer", set),
         .source = "https://huggingface.co/datasets/Idavidrein/gpqa (behind its form)",
         .download = fmt::format("python3 -c \"import datasets; datasets.load_dataset('Idavidrein/gpqa', 'gpqa_{0}', "
                                 "split='train').to_json('$KVARENA_DATA/gpqa/gpqa_{0}.jsonl')\"",
                                 set),
         .licence = "CC BY 4.0",
         .metrics = {"multiple_choice"},
         .folder = "gpqa",
         .files = {fmt::format("gpqa_{}.jsonl", set)},
         .samples = rows,
         .chat_template = false,
         .generation = {.max_new_tokens = 4096, .stop = {"</s>"}}},
        [] { return std::make_unique<Gpqa>(); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
