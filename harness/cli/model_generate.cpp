// kvarena model generate: an answer under any method, as it comes.

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/method_spec.h"
#include "harness/cli/model_input.h"
#include "harness/cli/registry_text.h"
#include "harness/core/error.h"
#include "harness/core/page.h"
#include "harness/core/seconds_since.h"
#include "harness/core/terminal.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"

namespace kvarena::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  ModelOptions model;
  PromptOptions prompt;
  std::optional<std::string> method;
  int64_t max_new_tokens = 128;
  double temperature = 0;
  double top_p = 1;
  int64_t seed = 0;
  bool quiet = false;

  void declare(OptionSet& o) {
    model.declare(o);
    prompt.declare(o);
    o.option("method", "METHOD", method).help("JSON or NAME:key=value,...").default_text("keeps everything");
    o.option("max-new-tokens", "N", max_new_tokens).help("end after so many tokens");
    o.option("temperature", "X", temperature).help("0 takes the likeliest token");
    o.option("top-p", "X", top_p).help("sample from the likeliest tokens that together have this probability");
    o.option("seed", "N", seed).help("of sampling");
    o.flag("quiet", quiet).help("no timing on standard error");
  }

  void check() const {
    if (max_new_tokens < 1)
      fail({.place = "--max-new-tokens", .found = fmt::format("{}", max_new_tokens), .expected = "at least 1"});
    if (temperature < 0)
      fail({.place = "--temperature", .found = fmt::format("{}", temperature), .expected = "at least 0"});
    if (top_p <= 0 || top_p > 1) {
      fail({.place = "--top-p", .found = fmt::format("{}", top_p), .expected = "above 0 and at most 1"});
    }
  }
};

/// Prints tokens as they are decided, whole characters only.
class Stream {
 public:
  explicit Stream(const Tokenizer& tokenizer) : text_(tokenizer) {}

  void show(const Session& session) {
    for (; shown_ < session.tokens.size(); ++shown_) print(text_.push(session.tokens[shown_]));
    flush_output();
  }
  void finish() {
    print(text_.finish() + "\n");
    flush_output();
  }

 private:
  Detokenizer text_;
  size_t shown_ = 0;
};

struct Times {
  double load_s = 0;
  double first_token_s = 0;  // since the model was loaded
  double decode_s = 0;
};

std::string summary(const Prefill& prompt, const Session& session, const Times& times) {
  const auto decoded = static_cast<double>(session.tokens.size()) - 1;
  std::string text =
      fmt::format("model loaded in {:.2f} s; prompt of {} tokens in {:.2f} s; first token after {:.2f} s; {} tokens",
                  times.load_s, prompt.tokens.size(), prompt.seconds, times.first_token_s, session.tokens.size());
  if (decoded > 0 && times.decode_s > 0) text += fmt::format(", {:.1f} a second", decoded / times.decode_s);
  text += fmt::format("; cache {} of {} after the prompt", bytes_text(session.resident_bytes),
                      bytes_text(prompt.cache.bytes()));
  if (session.activity.tokens_drafted > 0) {
    text += fmt::format("; {} of {} drafted tokens accepted in {} rounds", session.activity.tokens_accepted,
                        session.activity.tokens_drafted, session.rounds.size());
  }
  return text + fmt::format("; ended by {}", to_string(session.finish));
}

/// The method asked for, or the one that every comparison refers to.
std::unique_ptr<Method> chosen_method(const std::optional<std::string>& spec) {
  if (spec) return make_method(parse_method_spec(*spec, "--method"), "--method");
  for (const MethodEntry& entry : method_registry()) {
    if (entry.family == Family::reference) return entry.create();
  }
  fail({.place = "--method", .found = "nothing, and no reference method in this build", .expected = "a method"});
}

int run(const Options& options) {
  options.check();
  const auto method = chosen_method(options.method);
  Times times;
  const auto started = Clock::now();
  const OpenedModel model = open_chosen(options.model);
  const std::vector<int32_t> tokens = prompt_tokens(options.prompt, model);
  Transformer transformer = load_weights(model, options.model);
  times.load_s = seconds_since(started);

  const auto loaded = Clock::now();
  const Prefill prompt =
      prefill(transformer, tokens, method->asks(), kPrefillChunk, facts_of(model, transformer, options.model));
  const auto session =
      start_session(transformer, prompt, *method,
                    {.stop = {.max_new_tokens = options.max_new_tokens, .stop_tokens = stop_tokens(model)},
                     .sampling = {.temperature = options.temperature,
                                  .top_p = options.top_p,
                                  .seed = static_cast<uint64_t>(options.seed)},
                     .tokenizer = model.tokenizer.get()});
  times.first_token_s = seconds_since(loaded);

  Stream stream(*model.tokenizer);
  stream.show(*session);
  const auto first = Clock::now();
  Session* const sessions[] = {session.get()};
  run_together(transformer, sessions, [&] { stream.show(*session); });
  times.decode_s = seconds_since(first);
  stream.finish();
  if (!session->failure.empty()) throw UserError(session->failure);
  if (!options.quiet) fmt::print(stderr, "{}\n", summary(prompt, *session, times));
  return 0;
}

}  // namespace

Command model_generate_command() {
  return make_command<Options>(
      {.name = "generate",
       .summary = "an answer from the model, under any method",
       .examples = {{"kvarena model generate --chat --prompt 'What is a cache?'", "with everything kept"},
                    {fmt::format("kvarena model generate --prompt-file long.txt --method {}", example_method()),
                     "under a method"}}},
      run);
}

}  // namespace kvarena::cli
