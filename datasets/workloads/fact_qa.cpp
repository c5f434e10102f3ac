// Questions about a report on invented things. Each thing has a person, an object and a color or number; the question
// names the thing and what is asked. Some solved questions about the same report show how short an answer is wanted.
// Essays between the entries make the report as long as one likes.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "datasets/texts/essays.h"
#include "datasets/texts/worlds.h"
#include "datasets/workload.h"

namespace kvarena::datasets {
namespace {

struct FactQaParameters {
  int64_t things = 4;
  int64_t filler = 2;
  int64_t examples = 3;
  int64_t questions = 1;
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
    const int64_t context = made_ / parameters_.questions;
    Draw draw(static_cast<uint64_t>(parameters_.seed), fmt::format("fact qa {}", context));
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
    // Examples and the first question are about different things, as long as there are enough.
    const std::vector<size_t> things = draw.choose(world.size(), world.size());
    std::set<const Fact*> told;
    for (int64_t i = 1; i <= parameters_.examples; ++i) {
      const Thing& thing = world[things[static_cast<size_t>(i) % things.size()]];
      const Fact& solved = draw.pick(thing.facts);
      told.insert(&solved);
      prompt.append(fmt::format("Question: {}\nAnswer: {}\n\n", solved.question, solved.answer));
    }
    const Fact* first = &draw.pick(world[things[0]].facts);
    told.insert(first);
    const auto number = static_cast<size_t>(made_ % parameters_.questions);
    const Fact& asked = number == 0 ? *first : *others(draw, world, told).at(number - 1);
    prompt.append(fmt::format(kQuestion, asked.question));
    if (parameters_.questions > 1) {
      sample.context = fmt::format("{}", context);
      sample.follow_up = "\n\n" + fmt::format(kQuestion, asked.question);
    }
    const size_t entry = entry_of(world, asked);
    sample.id = fmt::format("things-{}-{}", parameters_.things, made_);
    sample.messages = {{"user", std::move(prompt)}};
    sample.references = {asked.answer};
    sample.extras = nlohmann::json{{"thing", world[entry].name}, {"entry", entry}, {"entries", world.size()}}.dump();
    ++made_;
    return true;
  }

 private:
  static constexpr const char* kQuestion = "Question: {}\nAnswer:";

  /// The facts that neither examples nor the first question tell, in an order of their own.
  static std::vector<const Fact*> others(Draw& draw, const std::vector<Thing>& world,
                                         const std::set<const Fact*>& told) {
    std::vector<const Fact*> facts;
    for (const Thing& thing : world) {
      for (const Fact& fact : thing.facts) {
        if (!told.contains(&fact)) facts.push_back(&fact);
      }
    }
    draw.shuffle(facts);
    return facts;
  }

  static size_t entry_of(const std::vector<Thing>& world, const Fact& asked) {
    const auto has = [&](const Thing& thing) {
      return std::ranges::any_of(thing.facts, [&](const Fact& fact) { return &fact == &asked; });
    };
    return static_cast<size_t>(std::ranges::find_if(world, has) - world.begin());
  }

  FactQaParameters parameters_;
  int64_t made_ = 0;
};

class FactQa final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("things", parameters_.things).min(1).max(kMaxThings).doc("things in the report, three facts each");
    p("filler", parameters_.filler).min(0).doc("essay paragraphs after each thing, about 70 tokens each");
    p("examples", parameters_.examples).min(0).doc("solved questions before the question");
    p("questions", parameters_.questions).min(1).doc("questions about each report, each of another fact");
    p("samples", parameters_.samples).min(1).max(kMostGenerated).doc("questions in all");
    p("seed", parameters_.seed).min(0).doc("seed of names, facts and questions");
  }
  std::vector<std::string> problems() const override {
    const int64_t told = parameters_.examples + parameters_.questions, facts = 3 * parameters_.things;
    if (parameters_.questions == 1 || told <= facts) return {};
    return {fmt::format("questions: found {} and {} examples, expected at most {} together, the facts of {} things",
                        parameters_.questions, parameters_.examples, facts, parameters_.things)};
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
