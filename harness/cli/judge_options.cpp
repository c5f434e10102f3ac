#include "harness/cli/judge_options.h"

#include <fmt/format.h>

#include <cstdlib>

#include "harness/core/error.h"

namespace kvarena::cli {

void JudgeOptions::declare(OptionSet& o) {
  o.option("judge-url", "URL", url)
      .help(
          "the judge model that is asked about each answer: an OpenAI-compatible endpoint, up to the version "
          "(http://127.0.0.1:8000/v1); its key, if it needs one, is $KVARENA_JUDGE_KEY");
  o.option("judge-model", "NAME", endpoint.model).help("the judge, as the endpoint names it");
  o.option("judge-tries", "N", endpoint.patience.tries).help("tries of one question when the endpoint fails");
  o.option("judge-price-in", "X", endpoint.price_in).help("price of a million prompt tokens, for the cost shown");
  o.option("judge-price-out", "X", endpoint.price_out).help("price of a million answer tokens");
  o.option("judge-cache", "FOLDER", endpoint.cache).help("where answers are kept").default_text("in $KVARENA_HOME");
}

evaluate::EndpointSettings JudgeOptions::settings() const {
  evaluate::EndpointSettings settings = endpoint;
  if (!url) fail({.place = "--judge-url", .found = "nothing", .expected = "the judge's endpoint"});
  settings.url = *url;
  settings.patience.on_retry = [](const std::string& why) { fmt::print(stderr, "{}\n", why); };
  if (settings.model.empty()) {
    fail({.place = "--judge-model", .found = "nothing", .expected = "the judge's name at the endpoint"});
  }
  if (const char* key = std::getenv("KVARENA_JUDGE_KEY")) settings.key = key;
  return settings;
}

void print_use(const evaluate::EndpointUse& use, const std::string& model) {
  fmt::print(stderr, "judge {}: {} answers, {} of them from the cache, {} retries; {} + {} tokens, cost {:.4f}\n",
             model, use.answers, use.cached, use.retries, use.prompt_tokens, use.answer_tokens, use.cost);
}

}  // namespace kvarena::cli
