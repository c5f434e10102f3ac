// kvarena-session-bench: what a decoding step costs beside the forward pass, and what a sparse prefill saves.
//
//   kvarena-session-bench --method '{"name": "..."}' [Google Benchmark's options]      KVARENA_BENCH_MODEL=path
//
// A request decodes 64 tokens under the method; overhead is the share of that time which is not spent in the model:
// sampling, stop rules, the method's hooks, counting bytes.
//
// A sparse prefill is timed instead where the method is one: the prompt is read in full and by the method in turns. Its
// tokens are those of the text in the file KVARENA_BENCH_TEXT, over and over. speedup: of the processor's time, which
// other programs disturb less than the clock's; computed and kept: shares of the prompt's attention; kl: of the first
// token, in nats.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/prompt_meter.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "harness/model/open_model.h"
#include "kernels/bench/bench.h"

namespace kvarena {
namespace {

constexpr int64_t kTokens = 64;
using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

struct Timed {
  double whole = 0;
  double in_model = 0;
  int64_t passes = 0;
};

Timed decode(Transformer& model, Session& session) {
  Timed timed;
  const auto begin = Clock::now();
  while (!session.finished()) {
    const SequencePass pass = session.next_pass();
    const auto before = Clock::now();
    const std::span<const float> logits = model.forward({&pass, 1});
    timed.in_model += seconds(Clock::now() - before);
    session.consume(logits);
    ++timed.passes;
  }
  timed.whole = seconds(Clock::now() - begin);
  return timed;
}

[[maybe_unused]] void overhead_bench(benchmark::State& state, Transformer& model, const Method& method) {
  const std::vector<int32_t> tokens(static_cast<size_t>(state.range(0)), 7);
  const Prefill prompt = prefill(model, tokens, method.asks());
  Timed all;
  for ([[maybe_unused]] auto _ : state) {
    const auto session = start_session(model, prompt, method, {.stop = {.max_new_tokens = kTokens}});
    session->stop_sharing();
    const Timed timed = decode(model, *session);
    state.SetIterationTime(timed.whole);
    all.whole += timed.whole;
    all.in_model += timed.in_model;
    all.passes += timed.passes;
  }
  state.counters["overhead"] = 1 - all.in_model / all.whole;
  state.counters["us_a_step"] = 1e6 * (all.whole - all.in_model) / static_cast<double>(all.passes);
  state.counters["tokens/s"] = static_cast<double>(all.passes) / all.whole;
}

/// n tokens of the text, or of one repeated token where there is none.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, int64_t n) {
  const char* file = std::getenv("KVARENA_BENCH_TEXT");
  const std::vector<int32_t> text = file == nullptr ? std::vector<int32_t>{7} : tokenizer.encode(read_file(file));
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(text[static_cast<size_t>(i) % text.size()]);
  return tokens;
}

double divergence(std::span<const float> from, std::span<const float> logits) {
  const auto log_sum = [](std::span<const float> row) {
    double sum = 0;
    for (const float logit : row) sum += std::exp(double{logit});
    return std::log(sum);
  };
  const double log_from = log_sum(from), log_to = log_sum(logits);
  double kl = 0;
  for (size_t i = 0; i < from.size(); ++i)
    kl += std::exp(from[i] - log_from) * (from[i] - log_from - logits[i] + log_to);
  return kl;
}

[[maybe_unused]] void prefill_bench(benchmark::State& state, Transformer& model, const Tokenizer& tokenizer,
                                    const Method& method) {
  const std::vector<int32_t> tokens = prompt_tokens(tokenizer, state.range(0));
  double full_s = 0, sparse_s = 0;
  Prefill full = unread_prompt(model, tokens);
  PromptState sparse = {.cache = model.make_cache(), .logits = {}, .reuse = {}};
  Activity activity;
  for ([[maybe_unused]] auto _ : state) {
    const std::clock_t begin = std::clock();
    full = prefill(model, tokens, {});
    const std::clock_t between = std::clock();
    sparse = state_after_prompt(model, unread_prompt(model, tokens), method, activity);
    full_s += static_cast<double>(between - begin) / CLOCKS_PER_SEC;
    sparse_s += static_cast<double>(std::clock() - between) / CLOCKS_PER_SEC;
    state.SetIterationTime(sparse.seconds);
  }
  PromptMeter meter;
  (void)state_after_prompt(model, unread_prompt(model, tokens), method, activity, &meter);
  state.counters["full_cpu_s"] = full_s / static_cast<double>(state.iterations());
  state.counters["speedup"] = full_s / sparse_s;
  state.counters["computed"] = meter.mean().computed;
  state.counters["kept"] = meter.mean().kept;
  state.counters["kl"] = divergence(full.logits, sparse.logits);
}

int run(int argc, char** argv) {
  if (argc < 3 || std::string_view(argv[1]) != "--method") {
    std::fprintf(stderr, "usage: kvarena-session-bench --method SPEC [--benchmark_...]\n");
    return 1;
  }
  const auto method = make_method(nlohmann::json::parse(argv[2]), "--method");
  const char* chosen = std::getenv("KVARENA_BENCH_MODEL");
  OpenedModel opened = open_model(find_model(chosen == nullptr ? kDefaultModel : chosen));
  Transformer model(opened.config, *opened.checkpoint, {});
#ifndef __clang_analyzer__  // which takes what the library registers for lost
  const auto measure = [&](const char* name, const std::vector<int64_t>& lengths, const auto& bench) {
    benchmark::internal::Benchmark* const registered = benchmark::RegisterBenchmark(name, bench);
    registered->ArgName("prompt")->UseManualTime()->Unit(benchmark::kMillisecond);
    for (const int64_t length : lengths) {
      if (length <= model.config().max_position) registered->Arg(length);
    }
  };
  if (method->prompt_pass() == kWholePrompt) {
    measure("prefill_bench", {2048, 8192, 32768},
            [&](benchmark::State& state) { prefill_bench(state, model, *opened.tokenizer, *method); });
  } else {
    measure("overhead_bench", {512, 4096}, [&](benchmark::State& state) { overhead_bench(state, model, *method); });
  }
#endif
  argc -= 2;
  for (int i = 1; i < argc; ++i) argv[i] = argv[i + 2];
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace kvarena

int main(int argc, char** argv) {
  try {
    return kvarena::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
