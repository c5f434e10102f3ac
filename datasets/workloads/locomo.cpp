// LoCoMo (snap-research/locomo @3eb6f2c): two people talk on 19 to 32 days, and questions of five categories follow, in
// the prompts of task_eval/gpt_utils.py, a question each. As there the last day comes first. The two options of a
// question about what was never said take turns in their order, which is drawn there.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/context_rows.h"
#include "datasets/python_text.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

struct Category {
  int64_t number;
  const char* name;
  const char* title;
  int64_t questions;
};

constexpr int64_t kTemporal = 2, kAdversarial = 5;
constexpr Category kCategories[] = {{1, "multi_hop", "answers from several days", 282},
                                    {kTemporal, "temporal", "when something was", 321},
                                    {3, "open_domain", "what follows from the talk and the world", 96},
                                    {4, "single_hop", "answers from one day", 841},
                                    {kAdversarial, "adversarial", "what was never said, with two options", 446}};

constexpr const char* kStart =
    "Below is a conversation between two people: {} and {}. The conversation takes place over multiple days and the "
    "date of each conversation is wriiten at the beginning of the conversation.\n\n";
constexpr const char* kQuestion =
    "\n\n\nBased on the above context, write an answer in the form of a short phrase for the following question. "
    "Answer with exact words from the context whenever possible.\n\nQuestion: {} Short answer:\n";
constexpr const char* kChoice =
    "\n\n\nBased on the above context, answer the following question.\n\nQuestion: {} Select the correct answer: (a) "
    "{} (b) {}.  Short answer:\n";
constexpr const char* kNotMentioned = "Not mentioned in the conversation";

std::string day(const Row& talk, const std::string& session, const std::string& place) {
  std::string text =
      fmt::format("DATE: {}\nCONVERSATION:\n", string_field(talk, (session + "_date_time").c_str(), place));
  for (const Row& turn : any_field(talk, session.c_str(), place)) {
    text += fmt::format("{} said, \"{}\"\n", string_field(turn, "speaker", place), string_field(turn, "text", place));
    if (turn.contains("blip_caption"))
      text += fmt::format(" and shared {}.", string_field(turn, "blip_caption", place));
    text += "\n";
  }
  return text;
}

std::string conversation(const Row& talk, const std::string& place) {
  std::string days, end;
  const auto fields = static_cast<int64_t>(talk.size());
  for (int64_t i = fields; i > 0; --i) {
    const std::string session = fmt::format("session_{}", i);
    if (!talk.contains(session)) continue;
    days += day(talk, session, place);
    end += "\n\n";
  }
  return fmt::format(kStart, string_field(talk, "speaker_a", place), string_field(talk, "speaker_b", place)) + days +
         end;
}

std::vector<Sample> expand(const Category& category, const Row& row, const std::string& place, const Sample& sample) {
  std::vector<std::string> questions, answers;
  std::vector<nlohmann::json> extras;
  for (const Row& asked : any_field(row, "qa", place)) {
    if (integer_field(asked, "category", place) != category.number) continue;
    std::string question = string_field(asked, "question", place);
    nlohmann::json& extra = extras.emplace_back(nlohmann::json{{"category", category.number}});
    if (category.number != kAdversarial) {
      if (category.number == kTemporal) question += " Use DATE of CONVERSATION to answer with an approximate date.";
      questions.push_back(fmt::format(kQuestion, question));
      answers.push_back(python_text(any_field(asked, "answer", place)));
      continue;
    }
    std::string first = kNotMentioned, second = string_field(asked, "adversarial_answer", place);
    if (questions.size() % 2 == 1) std::swap(first, second);
    questions.push_back(fmt::format(kChoice, question, first, second));
    answers.emplace_back(kNotMentioned);
    extra["options"] = {{"a", first}, {"b", second}};
  }
  std::vector<Sample> samples =
      share_context(sample, conversation(any_field(row, "conversation", place), place), questions);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].references = {answers[i]};
    samples[i].extras = extras[i].dump();
  }
  return samples;
}

class LoCoMo final : public Workload {
 public:
  explicit LoCoMo(const Category& category) : category_(category) {}

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_context_source(require_data_file(info(), settings.data_dir),
                               std::bind_front(expand, std::cref(category_)));
  }

 private:
  const Category& category_;
};

[[maybe_unused]] const bool registered = [] {
  for (const Category& category : kCategories) {
    WorkloadRegistration({.name = fmt::format("locomo/{}", category.name),
                          .family = "locomo",
                          .title = fmt::format("LoCoMo {}: {}", category.name, category.title),
                          .source = "https://github.com/snap-research/locomo @3eb6f2c",
                          .download = "curl -L --create-dirs -o $KVARENA_DATA/locomo/locomo10.json "
                                      "https://raw.githubusercontent.com/snap-research/locomo/"
                                      "3eb6f2c585f5e1699204e3c3bdf7adc5c28cb376/data/locomo10.json",
                          .licence = "CC BY-NC 4.0",
                          .metrics = {"locomo"},
                          .folder = "locomo",
                          .files = {"locomo10.json"},
                          .samples = category.questions,
                          .generation = {.max_new_tokens = 32}},
                         [&category] { return std::make_unique<LoCoMo>(category); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
