// RULER (NVIDIA/RULER @c3f5e3b4): thirteen generated tasks at a wanted length in the model's own tokens. The official
// generator's draws are not reproduced (they come from Python and numpy); rows made by it can be read instead.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"
#include "datasets/ruler_tasks.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

class RulerSource final : public SampleSource {
 public:
  /// `task` says how many questions there are about each context.
  RulerSource(const RulerTask& task, int64_t length, int64_t samples, int64_t seed, const TokenCounter& tokens)
      : task_(task), length_(length), samples_(samples), seed_(static_cast<uint64_t>(seed)), tokens_(tokens) {}

  bool next(Sample& sample) override {
    if (made_ == samples_) return false;
    if (hay_ == 0) hay_ = most_hay();
    // Samples differ a little in length: less hay until this one fits.
    int64_t hay = hay_;
    Asked asked = make(hay);
    while (asked.longest() > length_ && hay > task_.step) asked = make(hay -= task_.step);
    if (asked.longest() > length_) {
      fail({.place = fmt::format("ruler/{}", task_.name),
            .found = fmt::format("length {}", length_),
            .expected = fmt::format("at least {}", asked.longest())});
    }
    const auto question = static_cast<size_t>(made_ % task_.questions);
    RulerRow& row = asked.rows[question];
    if (task_.questions > 1) sample.context = fmt::format("{}", made_ / task_.questions);
    sample.id = fmt::format("{}", made_++);
    sample.messages = {{"user", std::move(row.input)}};
    sample.answer_prefix = std::move(row.answer_prefix);
    sample.question = {0, row.question};
    sample.references = std::move(row.outputs);
    sample.extras = nlohmann::json{{"length", asked.lengths[question]}, {"wanted_length", length_}}.dump();
    return true;
  }

 private:
  /// All questions about one context, and their lengths in tokens.
  struct Asked {
    std::vector<RulerRow> rows;
    std::vector<int64_t> lengths;

    [[nodiscard]] int64_t longest() const { return std::ranges::max(lengths); }
  };

  Asked make(int64_t hay) const {
    Asked asked;
    RulerTask task = task_;
    for (task.question = 0; task.question < task.questions; ++task.question) {
      Draw draw(seed_, fmt::format("ruler {} {}", task_.name, made_ / task_.questions));
      asked.lengths.push_back(length_of(asked.rows.emplace_back(task_.make(task, draw, hay))));
    }
    return asked;
  }

  int64_t length_of(const RulerRow& row) const {
    return static_cast<int64_t>(tokens_.encode(row.input).size() + tokens_.encode(row.answer_prefix).size()) +
           tokens_.leading_special_tokens() + task_.max_new_tokens;
  }

  // The most hay with which the first sample fits: doubling, then halving the gap.
  int64_t most_hay() const {
    int64_t fits = task_.step;
    int64_t too_much = 2 * task_.step;
    while (make(too_much).longest() <= length_) {
      fits = too_much;
      too_much *= 2;
    }
    while (too_much - fits > task_.step) {
      const int64_t middle = fits + (too_much - fits) / 2 / task_.step * task_.step;
      (make(middle).longest() <= length_ ? fits : too_much) = middle;
    }
    return fits;
  }

  RulerTask task_;
  int64_t length_;
  int64_t samples_;
  uint64_t seed_;
  const TokenCounter& tokens_;
  int64_t hay_ = 0;
  int64_t made_ = 0;
};

// Older official files end `input` with the answer prefix and have no field for it.
bool fill(const Row& row, const std::string& place, Sample& sample) {
  sample.id = any_field(row, "index", place).dump();
  sample.messages = {{"user", string_field(row, "input", place)}};
  sample.references = strings_field(row, "outputs", place);
  if (row.contains("answer_prefix")) sample.answer_prefix = string_field(row, "answer_prefix", place);
  const std::string& text = sample.messages[0].content;
  const size_t last_line = text.rfind('\n');
  sample.question = {0, last_line == std::string::npos ? 0 : last_line};
  if (row.contains("length")) sample.extras = nlohmann::json{{"length", integer_field(row, "length", place)}}.dump();
  return true;
}

class Ruler final : public Workload {
 public:
  explicit Ruler(const RulerTask& task) : task_(task) {}
  void parameters(ParameterVisitor& p) override {
    p("length", length_).min(256).doc("tokens of prompt and answer together");
    if (asks_for_one()) {
      p("questions", questions_).min(1).max(kMostQuestions).doc("questions about each context, each of another key");
    }
    p("samples", samples_).min(1).max(kMostGenerated).doc(asks_for_one() ? "questions in all" : "samples in all");
    p("seed", seed_).min(0).doc("seed of keys, values, words and places");
    p("rows", rows_).doc("file of rows made by the official scripts, read instead of generating; empty = generate");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    if (!rows_.empty()) return make_row_source({rows_, std::filesystem::path(rows_).filename().string()}, fill);
    if (!settings.tokens) {
      fail({.place = info().name, .found = "no tokenizer", .expected = "one: the length is counted in tokens"});
    }
    RulerTask task = task_;
    task.questions = static_cast<int>(questions_);
    return std::make_unique<RulerSource>(task, length_, samples_, seed_, *settings.tokens);
  }

 private:
  static constexpr int64_t kMostQuestions = 16;

  /// Whether a question has one answer, which may stand in a conversation.
  [[nodiscard]] bool asks_for_one() const { return task_.haystack != 0 && task_.values * task_.queries == 1; }

  const RulerTask& task_;
  int64_t length_ = 4096;
  int64_t questions_ = 1;
  int64_t samples_ = 500;
  int64_t seed_ = 42;
  std::string rows_;
};

[[maybe_unused]] const bool registered = [] {
  for (const RulerTask& task : ruler_tasks()) {
    WorkloadRegistration({.name = fmt::format("ruler/{}", task.name),
                          .family = "ruler",
                          .title = fmt::format("RULER {}: {}", task.name, task.title),
                          .source = "generated; templates of NVIDIA/RULER",
                          .licence = "Apache-2.0 (templates); texts made by the project",
                          .metrics = {task.all ? "string_match_all" : "string_match_part"},
                          .samples = 500,
                          .generation = {.max_new_tokens = task.max_new_tokens}},
                         [&task] { return std::make_unique<Ruler>(task); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
