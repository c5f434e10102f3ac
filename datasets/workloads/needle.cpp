// Short needles for small models: each sample hides one invented fact ("The password of Oakford is silver-lantern.")
// in the project's essays and asks for it. Lengths are in words, so the samples do not depend on a tokenizer. Made so
// that a model of 135 million parameters finds most needles with its full cache.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "datasets/niah_protocol.h"
#include "datasets/texts/essays.h"
#include "datasets/texts/worlds.h"
#include "datasets/workload.h"

namespace kvarena::datasets {
namespace {

// A completion: asked in a chat, a model of this size prefers to talk about passwords.
constexpr const char* kQuestion = "\n\nQuestion: What is the password of {0}?\nAnswer: The password of {0} is";

struct NeedleParameters {
  std::vector<int64_t> words = {300, 450, 600, 750};
  std::vector<double> depths = {10, 30, 50, 70, 90};
  int64_t questions = 1;
  int64_t samples = 20;
  int64_t seed = 1;
};

struct Hidden {
  std::string place;
  std::string code;
  double depth = 0;  // in percent

  [[nodiscard]] std::string needle() const {
    return fmt::format("The password of {} is {}. Remember it.", place, code);
  }
};

class NeedleSource final : public SampleSource {
 public:
  explicit NeedleSource(NeedleParameters parameters) : parameters_(std::move(parameters)) {}

  bool next(Sample& sample) override {
    if (made_ == parameters_.samples) return false;
    const std::vector<double>& depths = parameters_.depths;
    const int64_t context = made_ / parameters_.questions;
    const auto cells = static_cast<int64_t>(parameters_.words.size() * depths.size());
    const auto cell = static_cast<size_t>(spread_order(context % cells, cells));
    const int64_t words = parameters_.words[cell / depths.size()];
    Draw draw(static_cast<uint64_t>(parameters_.seed), fmt::format("needle {}", context));
    std::vector<Hidden> hidden(1);
    hidden[0] = {.place = town_name(draw), .code = code_word(draw), .depth = depths[cell % depths.size()]};
    const uint64_t essays = draw.below(1u << 20);
    for (size_t i = 1; i < static_cast<size_t>(parameters_.questions); ++i) {
      hidden.push_back(another(draw, hidden, depths[(cell + i) % depths.size()]));
    }
    const Hidden& asked = hidden[static_cast<size_t>(made_ % parameters_.questions)];

    const char* task = hidden.size() > 1 ? "passwords" : "password";
    std::string content =
        fmt::format("Read the text and remember the {}.\n\n", task) +
        hide(first_words(write_essays(essays, static_cast<size_t>(words) * 8), static_cast<size_t>(words)), hidden);
    sample.question = {0, content.size()};
    content += fmt::format(kQuestion, asked.place);
    if (hidden.size() > 1) sample.context = fmt::format("{}", context);
    sample.id = fmt::format("words-{}-depth-{}-{}", words, asked.depth, made_);
    sample.messages = {{"user", std::move(content)}};
    sample.references = {asked.code};
    sample.extras = nlohmann::json{{"words", words}, {"depth_percent", asked.depth}, {"needle", asked.needle()}}.dump();
    ++made_;
    return true;
  }

 private:
  static std::string first_words(const std::string& text, size_t count) {
    size_t end = 0;
    for (size_t word = 0; word < count && end != std::string::npos; ++word) {
      end = text.find_first_of(" \n", text.find_first_not_of(" \n", end));
    }
    const size_t stop = text.rfind('.', end);
    return text.substr(0, stop == std::string::npos ? end : stop + 1);
  }

  /// A password that no one before it has, of a place that no one before it has.
  static Hidden another(Draw& draw, const std::vector<Hidden>& before, double depth) {
    while (true) {
      Hidden one{.place = town_name(draw), .code = code_word(draw), .depth = depth};
      const auto alike = [&](const Hidden& other) { return other.place == one.place || other.code == one.code; };
      if (std::ranges::none_of(before, alike)) return one;
    }
  }

  /// Hides all of them, the deepest first, so that the others' places stay what they are.
  static std::string hide(std::string text, std::vector<Hidden> hidden) {
    const size_t size = text.size();
    std::ranges::stable_sort(hidden, std::greater(), &Hidden::depth);
    for (const Hidden& one : hidden) text = hide(text, size, one.needle(), one.depth);
    return text;
  }

  // After the last full stop before the depth; at the start when there is none.
  static std::string hide(const std::string& text, size_t size, const std::string& needle, double depth) {
    const auto wanted = static_cast<size_t>(static_cast<double>(size) * depth / 100);
    if (depth >= 100) return fmt::format("{} {}", text, needle);
    const size_t stop = wanted == 0 ? std::string::npos : text.rfind(". ", wanted - 1);
    if (stop == std::string::npos) return fmt::format("{} {}", needle, text);
    return fmt::format("{}{} {}", text.substr(0, stop + 2), needle, text.substr(stop + 2));
  }

  NeedleParameters parameters_;
  int64_t made_ = 0;
};

class Needle final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("words", parameters_.words).doc("lengths of the text, in words");
    p("depths", parameters_.depths).doc("depths of the needle in percent of the text");
    p("questions", parameters_.questions)
        .min(1)
        .max(kMostQuestions)
        .doc("questions about each text, one for each of its needles; the depths of the others follow in the list");
    p("samples", parameters_.samples)
        .min(1)
        .max(kMostGenerated)
        .doc("questions in all; their texts go through the grid of lengths and depths evenly");
    p("seed", parameters_.seed).min(0).doc("seed of texts, names and passwords");
  }
  std::vector<std::string> problems() const override {
    std::vector<std::string> found;
    if (parameters_.words.empty() || parameters_.depths.empty()) {
      found.emplace_back("words and depths: expected at least one value each");
    }
    for (const int64_t words : parameters_.words) {
      if (words < 1) found.push_back(fmt::format("words: found {}, expected at least 1", words));
    }
    for (const double depth : parameters_.depths) {
      if (!(depth >= 0 && depth <= 100)) found.push_back(fmt::format("depths: found {}, expected 0 to 100", depth));
    }
    return found;
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings&) const override {
    return std::make_unique<NeedleSource>(parameters_);
  }

 private:
  static constexpr int64_t kMostQuestions = 16;
  NeedleParameters parameters_;
};

KVARENA_WORKLOAD(Needle, {.name = "needle",
                          .family = "needle",
                          .title = "One password hidden in essays, for small models (quickstart)",
                          .source = "generated",
                          .licence = "made by the project",
                          .metrics = {"needle"},
                          .samples = 20,
                          .chat_template = false,
                          .generation = {.max_new_tokens = 16, .stop = {"\n", "."}}});

}  // namespace
}  // namespace kvarena::datasets
