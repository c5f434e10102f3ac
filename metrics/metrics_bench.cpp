// How long scoring takes on one core. Targets: 10,000 QA predictions in 2 s, ROUGE-L of 1,000 pairs of 1,000 words in
// 10 s, KL of a row of 49,152 logits in 0.5 ms.
#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/core/random.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/distribution/divergence.h"
#include "metrics/registry.h"
#include "metrics/statistics.h"

namespace kvarena::metrics {
namespace {

std::string words(uint64_t seed, int64_t count, uint64_t vocabulary, int64_t sentence) {
  const RandomStream stream(seed, "bench words");
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    text += "word" + std::to_string(stream.below(vocabulary, static_cast<uint64_t>(i)));
    text += sentence > 0 && i % sentence == sentence - 1 ? ". " : " ";
  }
  return text;
}

void qa_f1_of_one_prediction(benchmark::State& state) {
  const MetricEntry& metric = find_metric("qa_f1");
  const nlohmann::json extras = nlohmann::json::object();
  const std::string prediction = words(1, state.range(0), 500, 0);
  const std::vector<std::string> answers = {words(2, 5, 500, 0), words(3, 5, 500, 0)};
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(score_sample(metric, {prediction, answers, extras}));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(qa_f1_of_one_prediction)->Arg(8)->Arg(64)->Arg(128);

void rouge_l_of_one_pair(benchmark::State& state) {  // range(1): words a sentence, 0 for one sentence
  const std::string prediction = words(1, state.range(0), 300, state.range(1));
  const std::string reference = words(2, state.range(0), 300, state.range(1));
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(pltrdy_rouge_l(prediction, reference));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(rouge_l_of_one_pair)->Args({1000, 20})->Args({1000, 0})->Args({10000, 20});

void kl_of_one_row(benchmark::State& state) {
  const auto vocab_size = static_cast<size_t>(state.range(0));
  const RandomStream stream(1, "bench logits");
  std::vector<float> full(vocab_size), lossy(vocab_size);
  for (size_t i = 0; i < vocab_size; ++i) {
    full[i] = static_cast<float>(20 * stream.uniform(i) - 10);
    lossy[i] = full[i] + static_cast<float>(stream.uniform(vocab_size + i));
  }
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(kl_nats(full, lossy));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * vocab_size * sizeof(float)));
}
BENCHMARK(kl_of_one_row)->Arg(32000)->Arg(49152)->Arg(151936);

void paired_difference_of_one_table_cell(benchmark::State& state) {
  const RandomStream stream(1, "bench scores");
  std::vector<double> method(static_cast<size_t>(state.range(0))), baseline(method.size());
  for (size_t i = 0; i < method.size(); ++i) {
    method[i] = stream.uniform(2 * i);
    baseline[i] = stream.uniform(2 * i + 1);
  }
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(paired_difference(method, baseline));
}
BENCHMARK(paired_difference_of_one_table_cell)->Arg(200)->Arg(1319);

}  // namespace
}  // namespace kvarena::metrics

BENCHMARK_MAIN();
