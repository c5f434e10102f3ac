// Function calling: a list of tools as JSON, solved examples, perhaps a dialogue about other tools, and a request whose
// call has one right name and one right set of arguments. The schema that is needed stands anywhere among the others,
// so a cache method that drops the wrong entries loses the name or the keys of the arguments.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "datasets/texts/functions.h"
#include "datasets/workload.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

struct FunctionCallingParameters {
  std::string variant = "simple";
  int64_t tools = 4;
  int64_t examples = 8;
  bool target_in_examples = true;
  std::string style = "chat";
  int64_t history = 0;
  int64_t calls = 2;
  std::optional<int64_t> context_tokens;
  int64_t samples = 20;
  int64_t seed = 1;

  void declare(ParameterVisitor& p) {
    p("variant", variant)
        .one_of({"simple", "parallel", "parallel_multiple"})
        .doc("one call; several calls of one function; calls of several functions");
    p("tools", tools).min(1).max(48).doc("tools that are listed, the right ones among them");
    p("examples", examples).min(0).max(48).doc("solved requests before the request; they go round the listed tools");
    p("target_in_examples", target_in_examples)
        .doc("whether solved requests may use the right tools; false leaves only their schemas to learn from");
    p("style", style)
        .one_of({"completion", "chat"})
        .doc(
            "completion: one text of \"Request: ... Call: ...\" pairs without chat template; chat: system text and "
            "turns");
    p("history", history).min(0).doc("turns of earlier dialogue about listed tools between the tools and the request");
    p("calls", calls).min(2).max(6).doc("calls of a request in the parallel variants");
    p("context_tokens", context_tokens)
        .min(1)
        .doc("lengthens the prompt to about this many tokens: first by tools, then by earlier dialogue");
    p("samples", samples).min(1).max(kMostGenerated).doc("samples in all");
    p("seed", seed).min(0).doc("seed of tools, requests and arguments");
  }
};

constexpr const char* kInstruction =
    "You can call these tools:\n\n{}\n\nAnswer each request with one tool call as JSON: "
    "{{\"name\": ..., \"arguments\": {{...}}}}";
constexpr const char* kInstructionMany =
    "You can call these tools:\n\n{}\n\nAnswer each request with a JSON list of tool calls: "
    "[{{\"name\": ..., \"arguments\": {{...}}}}, ...]";

class FunctionCallingSource final : public SampleSource {
 public:
  FunctionCallingSource(FunctionCallingParameters parameters, const TokenCounter* tokens)
      : parameters_(std::move(parameters)), many_(parameters_.variant != "simple"), tokens_(tokens) {}

  bool next(Sample& sample) override {
    if (made_ == parameters_.samples) return false;
    const auto number = static_cast<size_t>(made_++);
    int64_t tools = parameters_.tools;
    int64_t history = parameters_.history;
    compose(sample, number, tools, history);
    if (parameters_.context_tokens) lengthen(sample, number, tools, history);
    return true;
  }

 private:
  // A request of the sample's variant. In "parallel" all calls go to the first tool, else to different ones.
  FunctionRequest request(const std::vector<size_t>& targets, Draw& draw) const {
    const auto catalogue = function_catalogue();
    if (!many_) return draw_request(catalogue[targets[0]], draw);
    FunctionRequest all{.text = {}, .call = "["};
    for (int64_t i = 0; i < parameters_.calls; ++i) {
      const size_t target = parameters_.variant == "parallel" ? targets[0] : targets[static_cast<size_t>(i)];
      const FunctionRequest one = draw_request(catalogue[target], draw);
      all.text.append(i == 0 ? "" : " ").append(one.text);
      all.call.append(i == 0 ? "" : ", ").append(one.call);
    }
    all.call.append("]");
    return all;
  }

  // Every part has its own stream, so that a longer prompt holds the same request as a shorter one.
  void compose(Sample& sample, size_t number, int64_t tools, int64_t history) const {
    const auto catalogue = function_catalogue();
    const auto seed = static_cast<uint64_t>(parameters_.seed);
    std::vector<size_t> order =
        Draw(seed, fmt::format("function tools {}", number)).choose(catalogue.size(), catalogue.size());
    const size_t targets = parameters_.variant == "parallel_multiple" ? static_cast<size_t>(parameters_.calls) : 1;
    const std::vector<size_t> asked(order.begin(), order.begin() + static_cast<ptrdiff_t>(targets));
    std::vector<size_t> listed(order.begin(), order.begin() + static_cast<ptrdiff_t>(tools));
    // Tools of solved requests; without any other listed tool the right ones have to serve.
    std::vector<size_t> earlier = listed;
    if (!parameters_.target_in_examples && listed.size() >= 2 * targets) {
      earlier.erase(earlier.begin(), earlier.begin() + static_cast<ptrdiff_t>(targets));
    }
    Draw places(seed, fmt::format("function order {} {}", number, tools));
    places.shuffle(listed);

    std::string schemas;
    for (const size_t tool : listed) {
      schemas.append(schemas.empty() ? "" : "\n").append(function_schema(catalogue[tool]));
    }
    Draw turns(seed, fmt::format("function turns {}", number));
    turns.shuffle(earlier);
    std::vector<FunctionRequest> solved;
    for (int64_t turn = 0; turn < parameters_.examples + history; ++turn) {
      std::vector<size_t> used;
      for (size_t i = 0; i < targets; ++i) used.push_back(earlier[(static_cast<size_t>(turn) + i) % earlier.size()]);
      solved.push_back(request(used, turns));
    }
    Draw last(seed, fmt::format("function request {}", number));
    const FunctionRequest wanted = request(asked, last);
    write(sample, fmt::format(fmt::runtime(many_ ? kInstructionMany : kInstruction), schemas), solved, wanted.text);
    sample.references = {wanted.call};
    sample.id = fmt::format("{}-{}", parameters_.variant, number);
    sample.extras = nlohmann::json{{"tools", tools}, {"turns", parameters_.examples + history}}.dump();
  }

  void write(Sample& sample, const std::string& instruction, const std::vector<FunctionRequest>& solved,
             const std::string& wanted) const {
    if (parameters_.style == "chat") {
      sample.messages = {{"system", instruction}};
      for (const FunctionRequest& turn : solved) {
        sample.messages.push_back({"user", turn.text});
        sample.messages.push_back({"assistant", turn.call});
      }
      sample.messages.push_back({"user", wanted});
      sample.question = {sample.messages.size() - 1, 0};
      return;
    }
    std::string prompt = instruction;
    for (const FunctionRequest& turn : solved) {
      prompt.append(fmt::format("\n\nRequest: {}\nCall: {}", turn.text, turn.call));
    }
    prompt.append("\n\n");
    sample.chat_template = false;
    sample.generation.stop = {"\n"};
    sample.question = {0, prompt.size()};
    prompt.append(fmt::format("Request: {}\nCall:", wanted));
    sample.messages = {{"user", std::move(prompt)}};
  }

  void lengthen(Sample& sample, size_t number, int64_t tools, int64_t history) const {
    const auto catalogue_size = static_cast<int64_t>(function_catalogue().size());
    while (true) {
      int64_t length = 0;
      for (const Message& message : sample.messages) {
        length += static_cast<int64_t>(tokens_->encode(message.content).size());
      }
      if (length >= *parameters_.context_tokens) return;
      // A tool has about 60 tokens and a turn 40: steps that never pass the goal by more than a few turns.
      const int64_t missing = *parameters_.context_tokens - length;
      if (tools < catalogue_size) {
        tools = std::min(catalogue_size, tools + 1 + missing / 120);
      } else {
        history += 1 + missing / 100;
      }
      compose(sample, number, tools, history);
    }
  }

  FunctionCallingParameters parameters_;
  bool many_;
  const TokenCounter* tokens_;
  int64_t made_ = 0;
};

class FunctionCalling final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override { parameters_.declare(p); }
  std::vector<std::string> problems() const override {
    if (parameters_.variant == "parallel_multiple" && parameters_.tools < parameters_.calls) {
      return {fmt::format("{} calls of different tools need at least as many tools, found {}", parameters_.calls,
                          parameters_.tools)};
    }
    return {};
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    if (parameters_.context_tokens && !settings.tokens) {
      fail({.place = info().name, .found = "context_tokens without a tokenizer", .expected = "both or neither"});
    }
    return std::make_unique<FunctionCallingSource>(parameters_, settings.tokens);
  }

 private:
  FunctionCallingParameters parameters_;
};

KVARENA_WORKLOAD(FunctionCalling, {.name = "function_calling",
                                   .family = "function_calling",
                                   .title = "Pick the tool and fill in its arguments (quickstart)",
                                   .source = "generated",
                                   .licence = "made by the project",
                                   .metrics = {"exact_call_accuracy"},
                                   .samples = 20,
                                   .generation = {.max_new_tokens = 48}});

}  // namespace
}  // namespace kvarena::datasets
