// LongBench v2 (THUDM/LongBench @2e00731f, top level): 503 multiple-choice questions over long texts.

#include <array>
#include <nlohmann/json.hpp>

#include "datasets/prompt.h"
#include "datasets/python_text.h"
#include "datasets/records.h"
#include "datasets/row_source.h"

namespace kvarena::datasets {
namespace {

// prompts/0shot.txt and prompts/0shot_no_context.txt
constexpr const char* kWithContext =
    "Please read the following text and answer the question below.\n\n"
    "<text>\n$DOC$\n</text>\n\n"
    "What is the correct answer to this question: $Q$\n"
    "Choices:\n(A) $C_A$\n(B) $C_B$\n(C) $C_C$\n(D) $C_D$\n\n"
    "Format your response as follows: \"The correct answer is (insert answer here)\".";
constexpr const char* kWithoutContext =
    "What is the correct answer to this question: $Q$\n"
    "Choices:\n(A) $C_A$\n(B) $C_B$\n(C) $C_C$\n(D) $C_D$\n\n"
    "What is the single, most likely answer choice? Format your response as follows: "
    "\"The correct answer is (insert answer here)\".";

constexpr std::array<std::pair<const char*, const char*>, 6> kSlots = {{{"$DOC$", "context"},
                                                                        {"$Q$", "question"},
                                                                        {"$C_A$", "choice_A"},
                                                                        {"$C_B$", "choice_B"},
                                                                        {"$C_C$", "choice_C"},
                                                                        {"$C_D$", "choice_D"}}};

// One slot after another, as the official code does: a document that contains "$Q$" is damaged there, and here.
std::string fill_slots(std::string text, const Row& row, const std::string& place) {
  for (const auto& [slot, field] : kSlots) {
    text = replace_all(std::move(text), slot, strip(string_field(row, field, place)));
  }
  return text;
}

bool fill(const std::string& form, const Row& row, const std::string& place, Sample& sample) {
  const std::string form_after_document =
      form.substr(form.find("$DOC$") == std::string::npos ? 0 : form.find("$DOC$") + 5);
  std::string prompt = fill_slots(form, row, place);
  const size_t question = prompt.size() - fill_slots(form_after_document, row, place).size();
  sample.id = string_field(row, "_id", place);
  sample.messages = {{"user", std::move(prompt)}};
  sample.question = {0, question};
  sample.references = {string_field(row, "answer", place)};
  sample.extras = nlohmann::json{{"domain", string_field(row, "domain", place)},
                                 {"difficulty", string_field(row, "difficulty", place)},
                                 {"length", string_field(row, "length", place)}}
                      .dump();
  return true;
}

class LongBenchV2 final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("prompt", prompt_)
        .one_of({"0shot", "0shot_no_context"})
        .doc("official prompt: with the text, or the question alone");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    const std::string form = prompt_ == "0shot" ? kWithContext : kWithoutContext;
    return make_row_source(require_data_file(info(), settings.data_dir), std::bind_front(fill, form));
  }

 private:
  std::string prompt_ = "0shot";
};

KVARENA_WORKLOAD(LongBenchV2, {.name = "longbench-v2",
                               .family = "longbench-v2",
                               .title = "LongBench v2: multiple choice over texts of 8k to 2M words",
                               .source = "https://huggingface.co/datasets/THUDM/LongBench-v2 (data.json)",
                               .download = "curl -L --create-dirs -o $KVARENA_DATA/longbench-v2/data.json "
                                           "https://huggingface.co/datasets/THUDM/LongBench-v2/resolve/main/data.json",
                               .licence = "Apache-2.0",
                               .metrics = {"longbench_v2"},
                               .folder = "longbench-v2",
                               .files = {"data.json", "synthetic.json"},
                               .samples = 503,
                               .generation = {.max_new_tokens = 128, .temperature = 0.1},
                               .truncation = TruncationRule::middle_joined});

}  // namespace
}  // namespace kvarena::datasets
