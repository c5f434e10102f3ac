// kvarena-method-bench: what methods cost beside full KV on one prompt, in processor time.
//
//   kvarena-method-bench LAYERS TOKENS TEXT FULL SETTINGS...      KVARENA_BENCH_MODEL=path
//
// The model is the first LAYERS layers, the prompt TOKENS tokens of the text, over and over; SETTINGS are methods as
// JSON, FULL those of full KV. One prefill observes what all of them ask for. Each method prints a line of JSON when it
// is done: seconds of a prefill that observes nothing, of compressing (the least of up to three times; of a method that
// reads the prompt itself, of reading it), of a token of its answer and of full KV's, whose steps take turns with its
// own; bytes that a step reads. Processor time is of the whole program on one thread: waiting is not in it.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <span>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/selection_meter.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "harness/method/reuser.h"
#include "harness/model/open_model.h"
#include "kernels/common/parallel.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr int64_t kSteps = 32;

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

OpenedModel opened(int64_t layers, int64_t tokens) {
  const char* chosen = std::getenv("KVARENA_BENCH_MODEL");
  OpenedModel files = open_model(find_model(chosen == nullptr ? kDefaultModel : chosen));
  files.config.layers = std::min(files.config.layers, layers);
  files.config.max_position = std::max(files.config.max_position, 2 * (tokens + kSteps));  // some read it twice
  return files;
}

struct Bench {
  OpenedModel files;
  Transformer model;
  std::shared_ptr<ModelFacts> facts;
  std::vector<int32_t> tokens;

  Bench(int64_t layers, int64_t n, const std::string& text)
      : files(opened(layers, n)),
        model(files.config, *files.checkpoint, {}),
        facts(model_facts(model, {kvarena_home() / "fitted"})) {
    facts->text = text_facts(*files.tokenizer, files.chat_template);
    const std::vector<int32_t> words = files.tokenizer->encode(text);
    for (int64_t i = 0; i < n; ++i) tokens.push_back(words[static_cast<size_t>(i) % words.size()]);
  }
};

/// One pass of a session, in processor seconds.
double pass(Transformer& model, Session& session) {
  PassMember* const member = &session;
  const double begin = processor_seconds();
  run_pass(model, {&member, 1});
  const double taken = processor_seconds() - begin;
  if (session.finish == FinishReason::failed) throw UserError(session.failure);
  return taken;
}

SessionOptions so_many_tokens(int64_t count) { return {.stop = {.max_new_tokens = count}}; }

/// Entries of a head that a step attends to.
double attended(Bench& bench, const Prefill& prompt, const Method& method) {
  SelectionMeter meter(prompt.cache);
  SessionOptions options = so_many_tokens(2);
  options.meter = &meter;
  const auto session = start_session(bench.model, prompt, method, std::move(options));
  while (!session->finished()) (void)pass(bench.model, *session);
  return meter.steps().front().attended;
}

/// Bytes of the cache that a step reads: of a method that attends to a choice these entries, and what it holds beyond
/// full KV to choose by; all that it holds, of others.
double read_bytes(Bench& bench, const Prefill& prompt, const Method& method, const Session& session) {
  const auto held = static_cast<double>(session.resident_bytes), full = static_cast<double>(prompt.cache.bytes());
  if (session.activity.entries_skipped == 0) return held;
  const double entry = full / static_cast<double>(prompt.tokens.size());
  return std::min(held, std::max(0.0, held - full) + attended(bench, prompt, method) * entry);
}

json measure(Bench& bench, Prefill& prompt, const Method& method, const Method& full) {
  if (const Reuser* reuser = method.reuser()) {
    prompt.memory = std::make_shared<ReuseMemory>(ReuseMemory{.facts = prompt.model});
    prime(bench.model, prompt.tokens, prompt.layout, *reuser, *prompt.memory);
  }
  std::unique_ptr<Session> session;
  double compress = 0, all = 0;
  for (int64_t i = 0; i < 3 && all < 0.3; ++i) {
    session = nullptr;  // its memory first
    const double begin = processor_seconds();
    session = start_session(bench.model, prompt, method, so_many_tokens(kSteps + 1));
    const double taken = processor_seconds() - begin;
    compress = i == 0 ? taken : std::min(compress, taken);
    all += taken;
  }
  run_to_first_token(bench.model, *session);
  const auto other = start_session(bench.model, prompt, full, so_many_tokens(kSteps + 1));
  session->stop_sharing();
  other->stop_sharing();
  double own_s = 0, full_s = 0;
  while (!session->finished() || !other->finished()) {
    if (!other->finished()) full_s += pass(bench.model, *other);
    if (!session->finished()) own_s += pass(bench.model, *session);
  }
  const auto made = static_cast<double>(session->tokens.size() - 1);
  const bool drafts = method.verifier() != nullptr;
  return {{"compress_s", compress},
          {"reads_prompt", method.reuser() != nullptr || method.pruner() != nullptr || method.prompt_pass() > 0},
          {"step_s", own_s / made},
          {"full_step_s", full_s / kSteps},
          {"weight_bytes", bench.model.weight_bytes()},
          {"full_bytes", prompt.cache.bytes()},
          {"read_bytes", drafts ? json() : json(read_bytes(bench, prompt, method, *session))},
          {"acted", session->activity.acted()}};
}

int run(std::span<char*> words) {
  if (words.size() < 5) {
    std::fprintf(stderr, "usage: kvarena-method-bench LAYERS TOKENS TEXT FULL SETTINGS...\n");
    return 1;
  }
  std::vector<std::unique_ptr<Method>> methods;
  Needs needs;
  for (const std::string text : words.subspan(3)) {
    methods.push_back(make_method(json::parse(text), text));
    needs = combine(needs, methods.back()->asks());
  }
  const kernels::ScopedThreads one(1);
  Bench bench(std::stoll(words[0]), std::stoll(words[1]), read_file(words[2]));
  const double begin = processor_seconds();
  (void)prefill(bench.model, bench.tokens, {});
  const double prefill_s = processor_seconds() - begin;
  Prefill prompt = prefill(bench.model, bench.tokens, needs, kPrefillChunk, bench.facts);
  for (size_t i = 1; i < methods.size(); ++i) {
    json line = {{"settings", json::parse(words[3 + i])}, {"prefill_s", prefill_s}};
    try {
      line.update(measure(bench, prompt, *methods[i], *methods.front()));
    } catch (const std::exception& error) {
      line["failure"] = error.what();
    }
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace kvarena

int main(int argc, char** argv) {
  try {
    return kvarena::run(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
