// Chains of additions and subtractions: each line of the answer goes on from the result of the line before, with the
// same operation, or with the next one of a list in the prompt. An answer hangs on the newest generated line and on the
// prompt, for as many tokens as one likes.

#include <fmt/format.h>

#include <algorithm>

#include "datasets/draw.h"
#include "datasets/workload.h"

namespace kvarena::datasets {
namespace {

struct ChainParameters {
  std::string operations = "same";
  int64_t steps = 24;
  int64_t examples = 2;
  int64_t largest = 300;
  int64_t samples = 20;
  int64_t seed = 1;
};

struct Chain {
  std::string task;                // "start with 12, + 7, - 3", or "start with 12, + 7 on each of 24 lines"
  std::vector<std::string> lines;  // "12 + 7 = 19"
};

int64_t up_to(Draw& draw, int64_t most) { return 1 + static_cast<int64_t>(draw.below(static_cast<uint64_t>(most))); }

Chain same_operation(Draw& draw, int64_t steps, int64_t largest) {
  int64_t value = up_to(draw, std::min<int64_t>(30, largest - steps));
  const int64_t by = up_to(draw, std::min<int64_t>(9, (largest - value) / steps));
  Chain chain{.task = fmt::format("start with {}, + {} on each of {} lines", value, by, steps), .lines = {}};
  for (int64_t step = 0; step < steps; ++step, value += by) {
    chain.lines.push_back(fmt::format("{} + {} = {}", value, by, value + by));
  }
  return chain;
}

Chain listed_operations(Draw& draw, int64_t steps, int64_t largest) {
  int64_t value = up_to(draw, largest - 1);
  Chain chain{.task = fmt::format("start with {}", value), .lines = {}};
  for (int64_t step = 0; step < steps; ++step) {
    const bool adds = value < 2 || (value < largest - 1 && draw.below(2) == 0);
    const int64_t by = up_to(draw, std::min<int64_t>(20, adds ? largest - value : value - 1));
    const int64_t next = adds ? value + by : value - by;
    chain.task += fmt::format(", {} {}", adds ? '+' : '-', by);
    chain.lines.push_back(fmt::format("{} {} {} = {}", value, adds ? '+' : '-', by, next));
    value = next;
  }
  return chain;
}

class ChainSource final : public SampleSource {
 public:
  explicit ChainSource(const ChainParameters& parameters) : parameters_(parameters) {}

  bool next(Sample& sample) override {
    if (made_ == parameters_.samples) return false;
    Draw draw(static_cast<uint64_t>(parameters_.seed), fmt::format("arithmetic chain {}", made_));
    std::string prompt = "Every line goes on from the result of the line before.\n\n";
    for (int64_t i = 0; i < parameters_.examples; ++i) {
      const Chain solved = make(draw);
      prompt += fmt::format("Task: {}\n{}\n\n", solved.task, fmt::join(solved.lines, "\n"));
    }
    const Chain chain = make(draw);
    sample.question = {0, prompt.size()};
    prompt += fmt::format("Task: {}\n", chain.task);
    sample.id = fmt::format("steps-{}-{}", parameters_.steps, made_);
    sample.messages = {{"user", std::move(prompt)}};
    sample.references = chain.lines;
    ++made_;
    return true;
  }

 private:
  [[nodiscard]] Chain make(Draw& draw) const {
    const auto& made = parameters_.operations == "same" ? same_operation : listed_operations;
    return made(draw, parameters_.steps, parameters_.largest);
  }

  ChainParameters parameters_;
  int64_t made_ = 0;
};

class ArithmeticChain final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("operations", parameters_.operations)
        .one_of({"same", "listed"})
        .doc("one addition on every line, or the next of additions and subtractions in the prompt");
    p("steps", parameters_.steps).min(1).doc("lines of an answer, about 11 tokens each");
    p("examples", parameters_.examples).min(0).doc("solved chains of this length before it");
    p("largest", parameters_.largest).min(10).max(100'000).doc("largest value on the way");
    p("samples", parameters_.samples).min(1).max(kMostGenerated).doc("chains");
    p("seed", parameters_.seed).min(0).doc("seed of values and operations");
  }
  std::vector<std::string> problems() const override {
    if (parameters_.operations == "listed" || parameters_.steps < parameters_.largest) return {};
    return {fmt::format("steps: found {} and a largest value of {}, expected fewer steps than that", parameters_.steps,
                        parameters_.largest)};
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings&) const override {
    return std::make_unique<ChainSource>(parameters_);
  }

 private:
  ChainParameters parameters_;
};

KVARENA_WORKLOAD(ArithmeticChain, {.name = "arithmetic_chain",
                                   .family = "arithmetic_chain",
                                   .title = "Chains of additions, written out line by line",
                                   .source = "generated",
                                   .licence = "made by the project",
                                   .metrics = {"string_match_all"},
                                   .samples = 20,
                                   .chat_template = false,
                                   .generation = {.max_new_tokens = 512, .stop = {"\n\n", "Task:"}}});

}  // namespace
}  // namespace kvarena::datasets
