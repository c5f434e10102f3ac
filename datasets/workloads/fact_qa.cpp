// Questions about a report on invented things. Each thing has a person, an object and a color or number; the question
// names the thing and what is asked. Some solved questions about the same report show how short an answer is wanted.
// Essays between the entries make the report as long as one likes.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "datasets/texts/essays.h"
#include "datasets/texts/worlds.h"
#include "datasets/workload.h"

namespace kvarena::datasets {
namespace {

struct FactQaParameters {
  int64_t things = 4;
  int64_t filler = 2;
  int64_t examples = 3;
  int64_t samples = 20;
  int64_t seed = 1;
};

// Paragraphs of endless essays, one after another.
class Filler {
 public:
  explicit Filler(uint64_t seed) : seed_(seed) {}
  std::string next() {
    size_t end = text_.find("\n\n", begin_);
    while (end == std::string::npos) {
      text_.erase(0, begin_).append(write_essay(seed_, essays_++));
      begin_ = text_.find("\n\n") + 2;  // the title
      end = text_.find("\n\n", begin_);
    }
    std::string paragraph = text_.substr(begin_, end - begin_);
    begin_ = end + 2;
    return paragraph;
  }

 private:
  uint64_t seed_;
  size_t essays_ = 0;
  std::string text_;
  size_t begin_ = 0;
};

class FactQaSource final : public SampleSource {
 public:
  explicit FactQaSource(const FactQaParameters& parameters) : parameters_(parameters) {}

  bool next(Sample& sample) override {
    if (made_ == parameters_.samples) return false;
    Draw draw(static_cast<uint64_t>(parameters_.seed), fmt::format("fact qa {}", made_));
    const std::vector<Thing> world = make_world(draw, static_cast<size_t>(parameters_.things));
    Filler filler(draw.below(1u << 20));

    std::string prompt = "Report\n\n";
    for (const Thing& thing : world) {
      for (const size_t i : draw.choose(thing.facts.size(), thing.facts.size())) {
        prompt.append(thing.facts[i].sentence).append(" ");
      }
      prompt.back() = '\n';
      for (int64_t i = 0; i < parameters_.filler; ++i) prompt.append("\n").append(filler.next()).append("\n");
      prompt.append("\n");
    }
    sample.question = {0, prompt.size()};
    prompt.append("Questions about the report\n\n");
    // Examples and the question are about different things, as long as there are enough.
    const std::vector<size_t> things = draw.choose(world.size(), world.size());
    for (int64_t i = 1; i <= parameters_.examples; ++i) {
      const Thing& thing = world[things[static_cast<size_t>(i) % things.size()]];
      const Fact& solved = draw.pick(thing.facts);
      prompt.append(fmt::format("Question: {}\nAnswer: {}\n\n", solved.question, solved.answer));
    }
    const Fact& asked = draw.pick(world[things[0]].facts);
    prompt.append(fmt::format("Question: {}\nAnswer:", asked.question));
    sample.id = fmt::format("things-{}-{}", parameters_.things, made_);
    sample.messages = {{"user", std::move(prompt)}};
    sample.references = {asked.answer};
    sample.extras =
        nlohmann::json{{"thing", world[things[0]].name}, {"entry", things[0]}, {"entries", world.size()}}.dump();
    ++made_;
    return true;
  }

 private:
  FactQaParameters parameters_;
  int64_t made_ = 0;
};

class FactQa final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("things", parameters_.things).min(1).max(kMaxThings).doc("things in the report, three facts each");
    p("filler", parameters_.filler).min(0).doc("essay paragraphs after each thing, about 70 tokens each");
    p("examples", parameters_.examples).min(0).doc("solved questions before the question");
    p("samples", parameters_.samples).min(1).doc("samples in all, each with its own report");
    p("seed", parameters_.seed).min(0).doc("seed of names, facts and questions");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings&) const override {
    return std::make_unique<FactQaSource>(parameters_);
  }

 private:
  FactQaParameters parameters_;
};

KVARENA_WORKLOAD(FactQa, {.name = "fact_qa",
                          .family = "fact_qa",
                          .title = "Short questions about a report on invented things (quickstart)",
                          .source = "generated",
                          .licence = "made by the project",
                          .metrics = {"qa_f1", "exact_match"},
                          .samples = 20,
                          .chat_template = false,
                          .generation = {.max_new_tokens = 12, .stop = {"\n"}}});

}  // namespace
}  // namespace kvarena::datasets
