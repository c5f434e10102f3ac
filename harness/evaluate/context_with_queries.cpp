#include "harness/evaluate/context_with_queries.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::evaluate {
namespace {

/// Least tokens of a context.
constexpr int64_t kFewestTokens = 32;

/// Puts another question behind the sample's context.
datasets::Sample asking(const datasets::Sample& sample, const std::string& question) {
  datasets::Sample other = sample;
  other.messages.resize(sample.question.message + 1);
  std::string& text = other.messages.back().content;
  text.resize(sample.question.byte);
  text += "\n\n" + question;
  other.answer_prefix.clear();
  return other;
}

/// Divides made questions between training and test, in the proportion of the settings and as evenly as can be.
datasets::ContextQuestions made_questions(const datasets::Sample& sample, const experiment::ContextSettings& settings,
                                          uint64_t seed) {
  const std::string text = sample.messages[sample.question.message].content.substr(0, sample.question.byte);
  const int64_t train = settings.train_questions, all = train + settings.test_questions - 1;
  const std::vector<std::string> made = datasets::sentence_questions(text, all, seed);
  const auto count = static_cast<int64_t>(made.size());
  if (count == 0) {
    fail({.place = fmt::format("sample {}", sample.id),
          .found = "no sentence to ask about",
          .expected = "at least one in front of the question",
          .action = "take longer contexts, or give a file of questions"});
  }
  datasets::ContextQuestions questions;
  for (int64_t i = 0; i < count; ++i) {
    const bool trains = i == 0 || i * train / all > (i - 1) * train / all;
    (trains ? questions.train : questions.test).push_back(made[static_cast<size_t>(i)]);
  }
  return questions;
}

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

ContextWithQueries ask_about(LoadedModel& model, const datasets::Sample& sample,
                             const experiment::EngineSettings& engine, const experiment::ContextSettings& settings,
                             const datasets::ContextQuestions* given) {
  const datasets::ContextQuestions questions =
      given != nullptr ? *given : made_questions(sample, settings, static_cast<uint64_t>(engine.seed));
  ContextWithQueries asked;
  asked.id = sample.id;
  const auto add = [&](datasets::Sample one, std::vector<Request>& to) {
    asked.samples.push_back(std::move(one));
    to.push_back(model.request(asked.samples.back(), engine, {}));
  };
  for (const std::string& question : questions.train) {
    if (static_cast<int64_t>(asked.train.size()) < settings.train_questions) add(asking(sample, question), asked.train);
  }
  if (given == nullptr || given->test.empty()) add(sample, asked.test);
  for (const std::string& question : questions.test) {
    if (static_cast<int64_t>(asked.test.size()) < settings.test_questions) add(asking(sample, question), asked.test);
  }
  // Questions of a file may all begin alike: the sample's own says where the context ends.
  const std::vector<int32_t> own = model.request(sample, engine, {}).prompt;
  size_t shared = own.size() - 1;
  for (const std::vector<Request>* list : {&asked.train, &asked.test}) {
    for (const Request& request : *list) {
      shared = std::min({shared, common_prefix(own, request.prompt), request.prompt.size() - 1});
    }
  }
  if (static_cast<int64_t>(shared) < kFewestTokens) {
    fail({.place = fmt::format("sample {}", sample.id),
          .found = fmt::format("{} tokens in front of the question", shared),
          .expected = fmt::format("at least {}, a context that may be asked about again", kFewestTokens),
          .action = "take a workload whose question follows its context"});
  }
  asked.tokens.assign(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(shared));
  return asked;
}

}  // namespace kvarena::evaluate
