// QuALITY (nyu-mll/quality @f84977c, v1.0.1): stories of about 5,000 tokens, several questions about each with four
// options, of the development set. Prompt: ZeroSCROLLS's.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/choices.h"
#include "datasets/context_rows.h"
#include "datasets/prompt.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

constexpr const char* kBefore =
    "You are provided a story and a multiple-choice question with 4 possible answers (marked by A, B, C, D). Choose "
    "the best answer by writing its corresponding letter (either A, B, C, or D).\n\nStory:\n";
constexpr const char* kBehind =
    "\n\nQuestion and Possible Answers:\n{question}\n (A) {OPTION_A}\n (B) {OPTION_B}\n (C) {OPTION_C}\n (D) "
    "{OPTION_D}\n\nAnswer:\n";

std::vector<Sample> expand(bool hard, const Row& row, const std::string& place, const Sample& sample) {
  std::vector<std::string> questions, letters;
  std::vector<nlohmann::json> extras;
  for (const Row& asked : any_field(row, "questions", place)) {
    const int64_t difficult = integer_field(asked, "difficult", place);
    if (hard && difficult == 0) continue;
    const std::string question = string_field(asked, "question", place);
    const std::vector<std::string> options = options_field(asked, place);
    const int64_t right = integer_field(asked, "gold_label", place);
    if (right < 1 || right > std::ssize(options)) {
      fail({.place = place + ": gold_label", .found = fmt::format("{}", right), .expected = "1 to 4"});
    }
    std::vector<Slot> slots = option_slots(options);
    slots.push_back({"question", question});
    questions.push_back(render(kBehind, slots).text);
    letters.emplace_back(1, static_cast<char>('A' + right - 1));
    extras.push_back({{"choices", options}, {"difficult", difficult}});
  }
  std::vector<Sample> samples = share_context(sample, kBefore + string_field(row, "article", place), questions);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].references = {letters[i]};
    samples[i].extras = extras[i].dump();
  }
  return samples;
}

class Quality final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("hard", hard_).doc("only questions that most readers in a hurry answered wrongly");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_context_source(require_data_file(info(), settings.data_dir), std::bind_front(expand, hard_));
  }

 private:
  bool hard_ = false;
};

KVARENA_WORKLOAD(Quality, {.name = "quality",
                           .family = "quality",
                           .title = "QuALITY: questions about stories, with four options",
                           .source = "https://github.com/nyu-mll/quality @f84977c",
                           .download = "curl -L --create-dirs -o $KVARENA_DATA/quality/QuALITY.v1.0.1.htmlstripped.dev "
                                       "https://raw.githubusercontent.com/nyu-mll/quality/"
                                       "f84977c40dbfef70c9cab48037b7becfc8e45f73/data/v1.0.1/"
                                       "QuALITY.v1.0.1.htmlstripped.dev",
                           .licence = "CC BY 4.0; stories as their sources state",
                           .metrics = {"multiple_choice"},
                           .folder = "quality",
                           .files = {"QuALITY.v1.0.1.htmlstripped.dev"},
                           .samples = 2086,
                           .generation = {.max_new_tokens = 16},
                           .truncation = TruncationRule::middle_joined});

}  // namespace
}  // namespace kvarena::datasets
