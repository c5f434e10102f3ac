// kvarena-session-bench: what a decoding step costs beside the forward pass.
//
//   kvarena-session-bench --method '{"name": "..."}' [Google Benchmark's options]      KVARENA_BENCH_MODEL=path
//
// A request decodes 64 tokens under the method; overhead is the share of that time which is not spent in the model:
// sampling, stop rules, the method's hooks, counting bytes.

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/core/home.h"
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
  benchmark::RegisterBenchmark("overhead_bench",
                               [&](benchmark::State& state) { overhead_bench(state, model, *method); })
      ->ArgName("prompt")
      ->Arg(512)
      ->Arg(4096)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
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
