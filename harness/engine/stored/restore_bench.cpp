// kvarena-restore-bench: from stored bytes to a cache, in stored bytes a second, beside what reading and copying the
// same bytes takes in the same run.
//
//   kvarena-restore-bench [Google Benchmark's options]
//   KVARENA_BENCH_MODEL=path KVARENA_BENCH_METHOD='{"name": "...", "keep": 0.5}' kvarena-restore-bench

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "harness/core/home.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/stored/stored_cache.h"
#include "harness/method/registry.h"
#include "harness/model/open_model.h"
#include "kernels/bench/bench.h"
#include "kernels/common/parallel.h"

namespace kvarena {
namespace {

/// A model whose shape gives the caches theirs.
struct Opened {
  Transformer model;
  std::shared_ptr<const ModelFacts> facts;

  static Opened& only() {
    static Opened opened = [] {
      const char* chosen = std::getenv("KVARENA_BENCH_MODEL");
      OpenedModel files = open_model(find_model(chosen == nullptr ? kDefaultModel : chosen));
      Transformer model(files.config, *files.checkpoint, {});
      auto facts = model_facts(model);
      return Opened{.model = std::move(model), .facts = std::move(facts)};
    }();
    return opened;
  }
};

/// A prompt whose entries are random numbers.
Prefill random_prompt(const Opened& opened, int64_t tokens) {
  Prefill prompt{.tokens = std::vector<int32_t>(static_cast<size_t>(tokens), 7),
                 .cache = opened.model.make_cache(),
                 .model = opened.facts};
  uint32_t seed = 0;
  for (LayerCache& layer : prompt.cache.layers) {
    const int64_t row = layer.shape().kv_heads * layer.shape().head_dim;
    const std::vector<float> keys = kernels::bench::numbers(tokens * row, ++seed);
    const std::vector<float> values = kernels::bench::numbers(tokens * row, ++seed);
    layer.append(keys.data(), values.data(), tokens, row, 0);
  }
  prompt.cache.length = prompt.cache.prompt_length = tokens;
  return prompt;
}

/// Restores the whole cache, or what the method of KVARENA_BENCH_METHOD leaves.
void restore_bench(benchmark::State& state) {
  const Opened& opened = Opened::only();
  const char* spec = std::getenv("KVARENA_BENCH_METHOD");
  const std::unique_ptr<Method> method =
      spec == nullptr ? nullptr : make_method(nlohmann::json::parse(spec), "KVARENA_BENCH_METHOD");
  const std::vector<std::byte> bytes = store_cache(random_prompt(opened, state.range(0)), method.get());
  kernels::bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    const KvCache cache = restore_cache(opened.model, *opened.facts, method.get(), bytes);
    benchmark::DoNotOptimize(cache.length);
  }
  yardstick.report(std::ssize(bytes), 0);
}
BENCHMARK(restore_bench)->Arg(1024)->Arg(8192)->UseRealTime()->Unit(benchmark::kMillisecond);

/// As many bytes as a cache of 8192 tokens of SmolLM2-135M, copied by all threads into memory that is there already.
void copy_bench(benchmark::State& state) {
  constexpr int64_t kPart = int64_t{1} << 20, kParts = 180;
  const std::vector<float> from = kernels::bench::numbers(kParts * kPart / 4, 1);
  std::vector<float> to(from.size());
  kernels::bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    kernels::parallel_for(kParts, [&](int64_t part) {
      const auto at = static_cast<size_t>(part * kPart / 4);
      std::memcpy(&to[at], &from[at], kPart);
    });
    benchmark::DoNotOptimize(to.data());
  }
  yardstick.report(kParts * kPart, 0);
}
BENCHMARK(copy_bench)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvarena
