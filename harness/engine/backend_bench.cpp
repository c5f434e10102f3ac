// kvarena-backend-bench: the whole backend, with the machine's own limits measured in the same run.
//
//   kvarena-backend-bench                       KVARENA_BENCH_MODEL=path OMP_NUM_THREADS=2 kvarena-backend-bench
//
// decode: one token at a depth; batch: 4 to 64 sequences a pass; prefill: a prompt in chunks of 512. Bytes are all
// weights and all cache entries that a pass must read once, so of_read is the share of the byte ceiling that was
// reached; a layer with a sliding window is counted for its window only.

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

#include "harness/cache/sliding_window.h"
#include "harness/core/home.h"
#include "harness/model/open_model.h"
#include "harness/model/transformer.h"
#include "kernels/bench/bench.h"

namespace kvarena {
namespace {

using kernels::DType;
using kernels::bench::numbers;
using kernels::bench::Yardstick;

constexpr int64_t kLongest = 1 << 15;

using kernels::Arithmetic;

/// The default model, its window widened: what is measured does not depend on what the tokens mean.
Transformer& model(std::optional<DType> weights, Arithmetic arithmetic) {
  static std::map<std::pair<std::optional<DType>, Arithmetic>, std::unique_ptr<Transformer>> models;
  std::unique_ptr<Transformer>& found = models[{weights, arithmetic}];
  if (!found) {
    const char* chosen = std::getenv("KVARENA_BENCH_MODEL");
    OpenedModel opened = open_model(find_model(chosen == nullptr ? kDefaultModel : chosen));
    opened.config.max_position = 2 * kLongest;
    models.clear();  // one model's weights at a time
    const TransformerOptions options{.weights = weights, .cache = DType::bf16, .arithmetic = arithmetic};
    auto made = std::make_unique<Transformer>(opened.config, *opened.checkpoint, options);
    return *(models[{weights, arithmetic}] = std::move(made));
  }
  return *found;
}

/// A cache of `depth` made-up entries in every layer, without those that a sliding window has left behind.
KvCache filled_cache(const Transformer& model, int64_t depth) {
  KvCache cache = model.make_cache();
  constexpr int64_t piece = 512;
  for (LayerCache& layer : cache.layers) {
    const int64_t row = layer.shape().kv_heads * layer.shape().head_dim;
    const std::vector<float> entries = numbers(piece * row, 3);
    for (int64_t done = 0; done < depth; done += piece) {
      const int64_t count = std::min(piece, depth - done);
      layer.append(entries.data(), entries.data(), count, row, done);
      release_unseen(layer, done + count);
    }
  }
  cache.length = depth;
  return cache;
}

/// Entries of a layer that a query at `position` sees.
int64_t seen(const LayerShape& shape, int64_t position) {
  return position + 1 - oldest_seen(shape.window, shape.chunked, position);
}

/// `sequences` decode one token each at `depth`, which they keep.
void decode_bench(benchmark::State& state, std::optional<DType> weights, Arithmetic arithmetic = Arithmetic::exact) {
  const int64_t depth = state.range(0), sequences = state.range(1);
  Transformer& backend = model(weights, arithmetic);
  std::vector<KvCache> caches;
  for (int64_t i = 0; i < sequences; ++i) caches.push_back(filled_cache(backend, depth));
  const std::vector<int32_t> token = {7};
  std::vector<SequencePass> batch;
  for (KvCache& cache : caches) batch.push_back({.tokens = token, .cache = &cache});
  int64_t cache_bytes = 0;
  for (const LayerCache& layer : caches.front().layers) {
    cache_bytes += sequences * seen(layer.shape(), depth) * layer.shape().entry_bytes();
  }
  Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(backend.forward(batch).data());
    for (KvCache& cache : caches) cache.truncate(depth);
  }
  yardstick.report(backend.weight_bytes() + cache_bytes, 0);
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(sequences), benchmark::Counter::kIsIterationInvariantRate);
}

/// A prompt from nothing, in chunks of 512 tokens, logits of the last token.
void prefill_bench(benchmark::State& state, std::optional<DType> weights, Arithmetic arithmetic = Arithmetic::exact) {
  const int64_t n = state.range(0);
  Transformer& backend = model(weights, arithmetic);
  const std::vector<int32_t> tokens(static_cast<size_t>(n), 7);
  Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    KvCache cache = backend.make_cache();
    for (int64_t done = 0; done < n; done += 512) {
      const auto count = static_cast<size_t>(std::min<int64_t>(512, n - done));
      const SequencePass pass{.tokens = std::span(tokens).subspan(static_cast<size_t>(done), count),
                              .cache = &cache,
                              .logits = done + 512 >= n ? LogitsRows::last : LogitsRows::none};
      benchmark::DoNotOptimize(backend.forward({&pass, 1}).data());
    }
  }
  // Two operations a weight and token, and four a channel of each causal pair of query and key.
  const ModelConfig& config = backend.config();
  const int64_t weights_used = backend.weight_numbers() - config.vocab_size * config.hidden_size;
  int64_t pairs = 0;
  for (int64_t layer = 0; layer < config.cached_layers(); ++layer) {
    const LayerShape& shape = backend.layer_shape(layer);
    for (int64_t position = 0; position < n; ++position)
      pairs += seen(shape, position) * shape.q_heads * shape.head_dim;
  }
  yardstick.report(0, 2 * n * weights_used + 4 * pairs);
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(n), benchmark::Counter::kIsIterationInvariantRate);
}

void depths(benchmark::internal::Benchmark* b) {
  for (const int64_t depth : {0, 2048, 4096, 8192, 32512}) b->Args({depth, 1});
  for (const int64_t sequences : {4, 16, 64}) b->Args({2048, sequences});
  b->ArgNames({"depth", "sequences"})->UseRealTime()->Unit(benchmark::kMillisecond);
}
void prompts(benchmark::internal::Benchmark* b) {
  b->Arg(512)->Arg(2048)->Arg(8192)->Arg(32768)->ArgName("tokens")->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(decode_bench, f32, DType::f32)->Apply(depths);
BENCHMARK_CAPTURE(prefill_bench, f32, DType::f32)->Apply(prompts);
BENCHMARK_CAPTURE(decode_bench, bf16, DType::bf16)->Apply(depths);
BENCHMARK_CAPTURE(prefill_bench, bf16, DType::bf16)->Apply(prompts);
BENCHMARK_CAPTURE(decode_bench, rounded, DType::bf16, Arithmetic::bf16)->Apply(depths);
BENCHMARK_CAPTURE(prefill_bench, rounded, DType::bf16, Arithmetic::bf16)->Apply(prompts);
BENCHMARK_CAPTURE(decode_bench, as_stored, std::nullopt)->Apply(depths);
BENCHMARK_CAPTURE(prefill_bench, as_stored, std::nullopt)->Apply(prompts);

}  // namespace
}  // namespace kvarena
