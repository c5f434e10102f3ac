// Short needles for small models: each sample hides one invented fact ("The password of Oakford is silver-lantern.")
// in the project's essays and asks for it. Lengths are in words, so the samples do not depend on a tokenizer. Made so
// that a model of 135 million parameters finds most needles with its full cache.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "datasets/niah_protocol.h"
#include "datasets/texts/essays.h"
#include "datasets/texts/worlds.h"
#include "datasets/workload.h"

namespace kvarena::datasets {
namespace {

// A completion: asked in a chat, a model of this size prefers to talk about passwords.
constexpr const char* kQuestion = "\n\nQuestion: What is the password of {0}?\nAnswer: The password of {0} is";

class NeedleSource final : public SampleSource {
 public:
  NeedleSource(std::vector<int64_t> words, std::vector<double> depths, int64_t samples, int64_t seed)
      : words_(std::move(words)), depths_(std::move(depths)), samples_(samples), seed_(static_cast<uint64_t>(seed)) {}

  bool next(Sample& sample) override {
    if (made_ == samples_) return false;
    const auto cells = static_cast<int64_t>(words_.size() * depths_.size());
    const auto cell = static_cast<size_t>(spread_order(made_ % cells, cells));
    const int64_t words = words_[cell / depths_.size()];
    const double depth = depths_[cell % depths_.size()];
    Draw draw(seed_, fmt::format("needle {}", made_));
    const std::string place = town_name(draw);
    const std::string code = code_word(draw);
    const std::string needle = fmt::format("The password of {} is {}. Remember it.", place, code);

    std::string content = "Read the text and remember the password.\n\n" +
                          hide(first_words(write_essays(draw.below(1u << 20), static_cast<size_t>(words) * 8),
                                           static_cast<size_t>(words)),
                               needle, depth);
    sample.question = {0, content.size()};
    content += fmt::format(kQuestion, place);
    sample.id = fmt::format("words-{}-depth-{}-{}", words, depth, made_);
    sample.messages = {{"user", std::move(content)}};
    sample.references = {code};
    sample.extras = nlohmann::json{{"words", words}, {"depth_percent", depth}, {"needle", needle}}.dump();
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

  // After the last full stop before the depth; at the start when there is none.
  static std::string hide(const std::string& text, const std::string& needle, double depth) {
    const auto wanted = static_cast<size_t>(static_cast<double>(text.size()) * depth / 100);
    if (depth >= 100) return fmt::format("{} {}", text, needle);
    const size_t stop = wanted == 0 ? std::string::npos : text.rfind(". ", wanted - 1);
    if (stop == std::string::npos) return fmt::format("{} {}", needle, text);
    return fmt::format("{}{} {}", text.substr(0, stop + 2), needle, text.substr(stop + 2));
  }

  std::vector<int64_t> words_;
  std::vector<double> depths_;
  int64_t samples_;
  uint64_t seed_;
  int64_t made_ = 0;
};

class Needle final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("words", words_).doc("lengths of the text, in words");
    p("depths", depths_).doc("depths of the needle in percent of the text");
    p("samples", samples_).min(1).doc("samples in all; they go through the grid of lengths and depths evenly");
    p("seed", seed_).min(0).doc("seed of texts, names and passwords");
  }
  std::vector<std::string> problems() const override {
    std::vector<std::string> found;
    if (words_.empty() || depths_.empty()) found.emplace_back("words and depths: expected at least one value each");
    for (const int64_t words : words_) {
      if (words < 1) found.push_back(fmt::format("words: found {}, expected at least 1", words));
    }
    for (const double depth : depths_) {
      if (!(depth >= 0 && depth <= 100)) found.push_back(fmt::format("depths: found {}, expected 0 to 100", depth));
    }
    return found;
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings&) const override {
    return std::make_unique<NeedleSource>(words_, depths_, samples_, seed_);
  }

 private:
  std::vector<int64_t> words_ = {300, 450, 600, 750};
  std::vector<double> depths_ = {10, 30, 50, 70, 90};
  int64_t samples_ = 20;
  int64_t seed_ = 1;
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
