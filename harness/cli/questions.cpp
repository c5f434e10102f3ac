// kvarena questions: questions about a workload's contexts, written by a language model behind an endpoint.

#include "datasets/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "datasets/workload.h"
#include "harness/cli/commands.h"
#include "harness/cli/method_spec.h"
#include "harness/core/error.h"
#include "harness/core/home.h"
#include "harness/core/json_text.h"
#include "harness/core/page.h"
#include "harness/evaluate/chat_endpoint.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string workload;
  std::filesystem::path data_dir;
  int64_t samples = 10;
  int64_t train = 2;
  int64_t test = 4;
  evaluate::EndpointSettings endpoint{.temperature = 0, .max_tokens = 4096, .cache = kvarena_home() / "judge-cache"};

  void declare(OptionSet& o) {
    o.positional("WORKLOAD", workload)
        .help("its name, JSON, or NAME:key=value,...; its texts before the question")
        .required();
    o.option("url", "URL", endpoint.url)
        .help(
            "an OpenAI-compatible endpoint, up to the version (http://127.0.0.1:8000/v1); its key, if it needs one, is "
            "$KVARENA_JUDGE_KEY")
        .required();
    o.option("writer", "NAME", endpoint.model).help("who writes, as the endpoint names it").required();
    o.option("samples", "N", samples).help("contexts: the first so many samples");
    o.option("train", "N", train).help("questions of each that its forms are profiled with");
    o.option("test", "N", test).help("questions of each that requests ask");
    o.option("tries", "N", endpoint.patience.tries).help("tries of one question when the endpoint fails");
    o.option("cache", "FOLDER", endpoint.cache).help("where answers are kept").default_text("in $KVARENA_HOME");
    o.option("data", "FOLDER", data_dir)
        .help("where official data files are looked for")
        .default_text("$KVARENA_DATA, or the small project-made samples");
  }

  void check() const {
    for (const auto& [name, count] : {std::pair{"--samples", samples}, {"--train", train}, {"--test", test}}) {
      if (count < 1) fail({.place = name, .found = fmt::format("{}", count), .expected = "at least 1"});
    }
  }
};

/// Everything in front of the sample's question.
std::string context_of(const datasets::Sample& sample) {
  std::string text;
  for (size_t i = 0; i < sample.question.message; ++i) text += sample.messages[i].content + "\n\n";
  return text + sample.messages[sample.question.message].content.substr(0, sample.question.byte);
}

/// Asks for `count` different questions, again when an answer has too few.
std::vector<std::string> ask(evaluate::ChatEndpoint& endpoint, const datasets::Sample& sample, size_t count) {
  constexpr int64_t kDraws = 5;
  const std::string request = datasets::question_request(context_of(sample), static_cast<int64_t>(count));
  std::vector<std::string> questions;
  for (int64_t draw = 0; draw < kDraws && questions.size() < count; ++draw) {
    for (std::string& question : datasets::questions_in(endpoint.ask(request, draw))) {
      if (questions.size() == count) break;
      if (std::ranges::find(questions, question) == questions.end()) questions.push_back(std::move(question));
    }
  }
  if (questions.size() < count) {
    fail({.place = fmt::format("sample {}", sample.id),
          .found = fmt::format("{} different questions in {} answers", questions.size(), kDraws),
          .expected = fmt::format("{}, each a line that ends with a question mark", count),
          .action = "ask for fewer, or another writer"});
  }
  return questions;
}

int run(const Options& options) {
  options.check();
  evaluate::EndpointSettings settings = options.endpoint;
  if (const char* key = std::getenv("KVARENA_JUDGE_KEY")) settings.key = key;
  settings.patience.on_retry = [](const std::string& why) { fmt::print(stderr, "{}\n", why); };
  evaluate::ChatEndpoint endpoint(settings);
  const json spec = parse_method_spec(options.workload, "WORKLOAD");
  const auto workload = datasets::make_workload(spec.at("name").get<std::string>(), spec.dump(), "WORKLOAD");
  datasets::SampleReader reader = workload->open({.data_dir = options.data_dir});
  const int64_t all = options.train + options.test;
  for (int64_t i = 0; i < options.samples; ++i) {
    const auto sample = reader.next();
    if (!sample) break;
    const std::vector<std::string> questions = ask(endpoint, *sample, static_cast<size_t>(all));
    for (int64_t q = 0; q < all; ++q) {
      // Questions go through the text: both splits are to ask about all of it.
      const bool trains = (q + 1) * options.train / all > q * options.train / all;
      const json row = {{"context_id", sample->id}, {"split", trains ? "train" : "test"}, {"question", questions[q]}};
      print(json_text(row) + "\n");
    }
  }
  const evaluate::EndpointUse& use = endpoint.use();
  fmt::print(stderr, "{}: {} answers, {} of them from the cache, {} retries; {} + {} tokens\n", settings.model,
             use.answers, use.cached, use.retries, use.prompt_tokens, use.answer_tokens);
  return 0;
}

}  // namespace

Command questions_command() {
  return make_command<Options>(
      {.name = "questions",
       .summary = "questions about a workload's contexts, written by a model behind an endpoint",
       .description =
           "Asks a language model for questions about the text in front of each sample's own question, and writes them "
           "as JSON Lines: what \"contexts.questions\" of a config reads. Without such a file questions are made from "
           "the contexts' own sentences.",
       .examples = {{"kvarena questions longbench/qasper --url http://127.0.0.1:8000/v1 --writer NAME > qasper.jsonl",
                     "two to profile with and four to ask, of each of ten papers"},
                    {"kvarena run configs/contexts.json --set contexts.questions=qasper.jsonl", "asks them"}}},
      run);
}

}  // namespace kvarena::cli
