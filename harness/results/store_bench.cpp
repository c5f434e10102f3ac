// kvarena-results-bench: evaluated samples a second that the database takes.
//
//   kvarena-results-bench [FOLDER] [Google Benchmark's options]      a database in FOLDER, or where temporary files are

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <filesystem>

#include "harness/results/results_store.h"

namespace kvarena::results {
namespace {

std::filesystem::path folder;

/// A sample as a run writes it: an answer, six metrics, two series of 64 steps.
SampleResult sample(int64_t index) {
  SampleResult result{.cell_id = "cell",
                      .sample_id = fmt::format("sample {}", index),
                      .sample_index = index,
                      .prompt_sha256 = std::string(64, 'a'),
                      .prompt_tokens = 2048,
                      .output_tokens = 64,
                      .prediction = std::string(240, 'x'),
                      .references_json = R"(["an answer"])",
                      .finish_reason = "length",
                      .activity_json = R"({"entries_dropped": 1024})"};
  for (const char* metric : {"score_1", "score_2", "score_3", "score_4", "score_5", "score_6"}) {
    result.values.push_back({.metric = metric, .value = 0.5, .unit = "fraction"});
  }
  for (const char* name : {"series_1", "series_2"}) {
    result.series.push_back({.name = name, .values = std::vector<float>(64, 0.125F), .unit = "nats"});
  }
  return result;
}

void commit_bench(benchmark::State& state) {
  const std::filesystem::path path = folder / "kvarena-results-bench.db";
  const auto forget = [&] {
    for (const char* end : {"", "-wal", "-shm", "-lock"}) std::filesystem::remove(path.string() + end);
  };
  forget();
  {
    auto store = ResultsStore::open_or_create(path);
    CellRecord cell;
    cell.cell_id = "cell";
    cell.experiment = cell.model = cell.workload = cell.method = "bench";
    store.upsert_cells({&cell, 1});
    int64_t index = 0;
    for ([[maybe_unused]] auto _ : state) {
      std::vector<SampleResult> batch;
      for (int64_t i = 0; i < state.range(0); ++i) batch.push_back(sample(index++));
      store.commit("run", batch);
    }
    state.counters["samples/s"] = benchmark::Counter(static_cast<double>(index), benchmark::Counter::kIsRate);
  }
  forget();
}
BENCHMARK(commit_bench)->ArgName("batch")->Arg(1)->Arg(16)->Arg(64)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvarena::results

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  kvarena::results::folder = argc > 1 ? std::filesystem::path(argv[1]) : std::filesystem::temp_directory_path();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
