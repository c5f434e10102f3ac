// Chains of steps that an answer writes out, each line going on from the one before: additions and subtractions, and
// things that swap places. The operations are in the prompt, the state is in the newest line, and an answer hangs on
// both for as many tokens as one likes.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "datasets/draw.h"
#include "datasets/workload.h"

namespace kvarena::datasets {
namespace {

struct Chain {
  std::string task;                // "start with 12, + 7, - 3", or "A ring, B key; step 1 swap A B"
  std::vector<std::string> lines;  // "12 + 7 = 19", "step 1 swap A B: A key, B ring"
};
using MakeChain = std::function<Chain(Draw& draw)>;

struct ChainParameters {
  int64_t steps = 0;
  int64_t examples = 2;
  int64_t samples = 20;
  int64_t seed = 1;
};

/// Solved chains, and one to solve.
class ChainSource final : public SampleSource {
 public:
  /// `name` sets draws apart, `rule` says what lines do.
  ChainSource(const ChainParameters& parameters, const char* name, const char* rule, MakeChain make)
      : parameters_(parameters), name_(name), rule_(rule), make_(std::move(make)) {}

  bool next(Sample& sample) override {
    if (made_ == parameters_.samples) return false;
    Draw draw(static_cast<uint64_t>(parameters_.seed), fmt::format("{} {}", name_, made_));
    std::string prompt = fmt::format("{}\n\n", rule_);
    for (int64_t i = 0; i < parameters_.examples; ++i) {
      const Chain solved = make_(draw);
      prompt += fmt::format("Task: {}\n{}\n\n", solved.task, fmt::join(solved.lines, "\n"));
    }
    Chain chain = make_(draw);
    sample.question = {0, prompt.size()};
    prompt += fmt::format("Task: {}\n", chain.task);
    sample.id = fmt::format("steps-{}-{}", parameters_.steps, made_++);
    sample.messages = {{"user", std::move(prompt)}};
    sample.references = std::move(chain.lines);
    return true;
  }

 private:
  ChainParameters parameters_;
  const char* name_;
  const char* rule_;
  MakeChain make_;
  int64_t made_ = 0;
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

constexpr std::array kPlaces = {"A", "B", "C", "D", "E", "F"};
constexpr std::array kThings = {"ring", "key", "coin", "map", "book", "cup", "ball", "bell", "card", "pen"};

/// "A ring, B key, C coin"
std::string state_text(const std::vector<size_t>& things) {
  std::string text;
  for (size_t place = 0; place < things.size(); ++place)
    text += fmt::format("{}{} {}", place == 0 ? "" : ", ", kPlaces[place], kThings[things[place]]);
  return text;
}

Chain swaps(Draw& draw, int64_t steps, int64_t places) {
  std::vector<size_t> things = draw.choose(static_cast<size_t>(places), kThings.size());
  Chain chain{.task = state_text(things), .lines = {}};
  for (int64_t step = 1; step <= steps; ++step) {
    const std::vector<size_t> two = draw.choose(2, things.size());
    std::swap(things[two[0]], things[two[1]]);
    const std::string asked = fmt::format("step {} swap {} {}", step, kPlaces[two[0]], kPlaces[two[1]]);
    chain.task += "; " + asked;
    chain.lines.push_back(fmt::format("{}: {}", asked, state_text(things)));
  }
  return chain;
}

/// Parameters that both kinds have.
class ChainWorkload : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("steps", chains_.steps).min(1).doc("lines of an answer, about 11 tokens each, of swaps 6 and 3 a place");
    p("examples", chains_.examples).min(0).doc("solved chains of this length before it");
    p("samples", chains_.samples).min(1).max(kMostGenerated).doc("chains");
    p("seed", chains_.seed).min(0).doc("seed of what is drawn");
  }

 protected:
  explicit ChainWorkload(int64_t steps) { chains_.steps = steps; }
  ChainParameters chains_;
};

class ArithmeticChain final : public ChainWorkload {
 public:
  ArithmeticChain() : ChainWorkload(24) {}
  void parameters(ParameterVisitor& p) override {
    p("operations", operations_)
        .one_of({"same", "listed"})
        .doc("one addition on every line, or the next of additions and subtractions in the prompt");
    ChainWorkload::parameters(p);
    p("largest", largest_).min(10).max(100'000).doc("largest value on the way");
  }
  std::vector<std::string> problems() const override {
    if (operations_ == "listed" || chains_.steps < largest_) return {};
    return {fmt::format("steps: found {} and a largest value of {}, expected fewer steps than that", chains_.steps,
                        largest_)};
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings&) const override {
    const auto& made = operations_ == "same" ? same_operation : listed_operations;
    return std::make_unique<ChainSource>(
        chains_, "arithmetic chain", "Every line goes on from the result of the line before.",
        [made, steps = chains_.steps, largest = largest_](Draw& draw) { return made(draw, steps, largest); });
  }

 private:
  std::string operations_ = "same";
  int64_t largest_ = 300;
};

class StateChain final : public ChainWorkload {
 public:
  StateChain() : ChainWorkload(16) {}
  void parameters(ParameterVisitor& p) override {
    ChainWorkload::parameters(p);
    p("places", places_)
        .min(2)
        .max(std::ssize(kPlaces))
        .doc("places, with a thing in each; 3 are beyond a model of 135M parameters");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings&) const override {
    return std::make_unique<ChainSource>(
        chains_, "state chain", "Every line tells what lies where after one more swap.",
        [steps = chains_.steps, places = places_](Draw& draw) { return swaps(draw, steps, places); });
  }

 private:
  int64_t places_ = 2;
};

WorkloadInfo chains(const char* name, const char* title) {
  return {.name = name,
          .family = "chains",
          .title = title,
          .source = "generated",
          .licence = "made by the project",
          .metrics = {"string_match_all"},
          .samples = 20,
          .chat_template = false,
          .generation = {.max_new_tokens = 512, .stop = {"\n\n", "Task:"}}};
}

KVARENA_WORKLOAD(ArithmeticChain, (chains("arithmetic_chain", "Chains of additions, written out line by line")));
KVARENA_WORKLOAD(StateChain, (chains("state_chain", "Things that swap places, told line by line")));

}  // namespace
}  // namespace kvarena::datasets
