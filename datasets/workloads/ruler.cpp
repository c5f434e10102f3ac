// RULER (NVIDIA/RULER @c3f5e3b4): thirteen generated tasks at a wanted length in the model's own tokens. The official
// generator's draws are not reproduced (they come from Python and numpy); rows made by it can be read instead.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"
#include "datasets/ruler_tasks.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

class RulerSource final : public SampleSource {
 public:
  RulerSource(const RulerTask& task, int64_t length, int64_t samples, int64_t seed, const TokenCounter& tokens)
      : task_(task), length_(length), samples_(samples), seed_(static_cast<uint64_t>(seed)), tokens_(tokens) {}

  bool next(Sample& sample) override {
    if (made_ == samples_) return false;
    if (hay_ == 0) hay_ = most_hay();
    // Samples differ a little in length: less hay until this one fits.
    int64_t hay = hay_;
    RulerRow row = make(hay);
    while (length_of(row) > length_ && hay > task_.step) row = make(hay -= task_.step);
    const int64_t length = length_of(row);
    if (length > length_) {
      fail({.place = fmt::format("ruler/{}", task_.name),
            .found = fmt::format("length {}", length_),
            .expected = fmt::format("at least {}", length)});
    }
    sample.id = fmt::format("{}", made_++);
    sample.messages = {{"user", std::move(row.input)}};
    sample.answer_prefix = std::move(row.answer_prefix);
    sample.question = {0, row.question};
    sample.references = std::move(row.outputs);
    sample.extras = nlohmann::json{{"length", length}, {"wanted_length", length_}}.dump();
    return true;
  }

 private:
  RulerRow make(int64_t hay) const {
    Draw draw(seed_, fmt::format("ruler {} {}", task_.name, made_));
    return task_.make(task_, draw, hay);
  }

  int64_t length_of(const RulerRow& row) const {
    return static_cast<int64_t>(tokens_.encode(row.input).size() + tokens_.encode(row.answer_prefix).size()) +
           tokens_.leading_special_tokens() + task_.max_new_tokens;
  }

  // The most hay with which the first sample fits: doubling, then halving the gap.
  int64_t most_hay() const {
    int64_t fits = task_.step;
    int64_t too_much = 2 * task_.step;
    while (length_of(make(too_much)) <= length_) {
      fits = too_much;
      too_much *= 2;
    }
    while (too_much - fits > task_.step) {
      const int64_t middle = fits + (too_much - fits) / 2 / task_.step * task_.step;
      (length_of(make(middle)) <= length_ ? fits : too_much) = middle;
    }
    return fits;
  }

  const RulerTask& task_;
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
    p("samples", samples_).min(1).doc("samples in all");
    p("seed", seed_).min(0).doc("seed of keys, values, words and places");
    p("rows", rows_).doc("file of rows made by the official scripts, read instead of generating; empty = generate");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    if (!rows_.empty()) return make_row_source({rows_, std::filesystem::path(rows_).filename().string()}, fill);
    if (!settings.tokens) {
      fail({.place = info().name, .found = "no tokenizer", .expected = "one: the length is counted in tokens"});
    }
    return std::make_unique<RulerSource>(task_, length_, samples_, seed_, *settings.tokens);
  }

 private:
  const RulerTask& task_;
  int64_t length_ = 4096;
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
