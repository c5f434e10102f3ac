// kvarena-report-bench: what a report of many samples, and a comparison of two runs of as many, take.
//
//   kvarena-report-bench [FOLDER] [Google Benchmark's options]      databases in FOLDER, or where temporary files are

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "harness/core/files.h"
#include "harness/core/random.h"
#include "harness/results/results_store.h"
#include "metrics/stored_metrics.h"
#include "reports/compare.h"
#include "reports/experiment_report.h"

namespace kvarena::reports {
namespace {

namespace fs = std::filesystem;
using results::CellKind;

fs::path folder;

/// An experiment's size. Rows of samples: methods * workloads * samples.
struct Size {
  int64_t methods = 0;
  int64_t workloads = 0;
  int64_t samples = 0;  // of a cell
};

std::vector<results::CellRecord> cells_of(const Size& size) {
  std::vector<results::CellRecord> cells;
  for (int64_t method = 0; method < size.methods; ++method) {
    for (int64_t workload = 0; workload < size.workloads; ++workload) {
      cells.push_back(
          {.cell_id = fmt::format("{}", cells.size()),
           .experiment = "bench",
           .model = "model",
           .workload = fmt::format("workload {}", workload),
           .method = fmt::format("method {}", method),
           .method_name = fmt::format("method_{}", method),
           .protocol_json = R"({"dtype": "bf16", "metrics": "qa_f1 v1, exact_match v1", "question": "unseen"})",
           .protocol_sha256 = "card",
           .baseline = method == 0,
           .position = std::ssize(cells),
           .planned_samples = size.samples});
    }
  }
  return cells;
}

/// A sample as a quality cell has it. Of another run one score in ten differs.
results::SampleResult sample_of(const results::CellRecord& cell, int64_t index, int64_t run) {
  const RandomStream draws(static_cast<uint64_t>(index % 10 == 0 ? run : 0), cell.cell_id);
  const auto draw = [&](uint64_t what) { return draws.uniform(static_cast<uint64_t>(index) * 256 + what); };
  const double lost = cell.baseline ? 0 : 1e-3;
  const double score = draw(0) < 0.5 - 100 * lost ? draw(1) : 0;
  results::SampleResult sample{.cell_id = cell.cell_id,
                               .sample_id = fmt::format("sample-{}", index),
                               .sample_index = index,
                               .prompt_sha256 = fmt::format("{:064}", index),
                               .prompt_tokens = 2048,
                               .output_tokens = 32,
                               .prediction = fmt::format("An answer of a few words, which scores {}.", score),
                               .references_json = R"(["an answer"])",
                               .finish_reason = "stop",
                               .activity_json = R"({"entries_dropped": 1024})"};
  const double kept = cell.baseline ? 1 : 0.5 + 1e-3 * static_cast<double>(cell.position % 80);
  const auto add = [&](const metrics::StoredMetric& metric, double value) {
    sample.values.push_back({.metric = metric.name, .value = value, .unit = metric.unit});
  };
  sample.values.push_back({.metric = "qa_f1", .value = score, .unit = "fraction"});
  sample.values.push_back({.metric = "exact_match", .value = score < 1 ? 0.0 : 1.0, .unit = "fraction"});
  add(metrics::kKlNats, lost * draw(2));
  add(metrics::kKlNatsSum, 32 * lost * draw(2));
  add(metrics::kTop1Agreement, 1 - lost * draw(3));
  add(metrics::kExactMatchFull, draw(4) < 100 * lost ? 0.0 : 1.0);
  add(metrics::kFirstDivergence, 32 * draw(5));
  add(metrics::kResidentBytes, 1e6 * kept);
  add(metrics::kFullKvBytes, 1e6);
  add(metrics::kKeptBytesFraction, kept);
  add(metrics::kCompressionFactor, 1 / kept);
  results::Series kl{.name = metrics::kKlNats.name, .unit = "nats"};
  results::Series bytes{.name = metrics::kDeviceBytes.name, .unit = "bytes"};
  for (uint64_t step = 0; step < 32; ++step) {
    kl.values.push_back(static_cast<float>(lost * draw(8 + step)));
    bytes.values.push_back(static_cast<float>(1e6 * kept) + 1e3F * static_cast<float>(step));
  }
  sample.series = {std::move(kl), std::move(bytes)};
  return sample;
}

fs::path write_run(const Size& size, int64_t run) {
  fs::path path = folder / fmt::format("kvarena-report-bench-{}-{}.db", ::getpid(), run);
  for (const char* end : {"", "-wal", "-shm", "-lock"}) fs::remove(path.string() + end);
  auto store = results::ResultsStore::open_or_create(path);
  const std::string id = store.begin_run({.experiment = "bench", .title = "Bench"}, {.experiment = "bench"});
  const std::vector<results::MetricDefinition> metrics = {
      {.metric = "qa_f1", .unit = "fraction", .better = results::Direction::higher, .table_scale = 100},
      {.metric = metrics::kKlNats.name, .unit = "nats", .better = results::Direction::lower}};
  store.define_metrics(metrics);
  const std::vector<results::CellRecord> cells = cells_of(size);
  store.upsert_cells(cells);
  for (const results::CellRecord& cell : cells) {
    std::vector<results::SampleResult> samples;
    for (int64_t i = 0; i < size.samples; ++i) samples.push_back(sample_of(cell, i, run));
    store.commit(id, samples);
    store.settle_cell(cell.cell_id, {});
  }
  store.finish_run(id, results::RunState::finished);
  return path;
}

/// The databases of two runs, written once for benchmarks of one size after another.
struct Runs {
  explicit Runs(const Size& size) : before(write_run(size, 1)), after(write_run(size, 2)) {}
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;
  ~Runs() {
    for (const fs::path& path : {before, after}) fs::remove(path), fs::remove(path.string() + "-lock");
  }
  fs::path before, after;
};

std::unique_ptr<Runs> open_runs;

const Runs& runs_of(const benchmark::State& state) {
  static std::tuple<int64_t, int64_t, int64_t> of;
  const std::tuple wanted{state.range(0), state.range(1), state.range(2)};
  if (!open_runs || of != wanted) {
    open_runs.reset();
    open_runs = std::make_unique<Runs>(Size{state.range(0), state.range(1), state.range(2)});
    of = wanted;
  }
  return *open_runs;
}

void report_bench(benchmark::State& state) {
  const Runs& runs = runs_of(state);
  for ([[maybe_unused]] auto _ : state) {
    const ExperimentData data = read_experiment(results::ResultsReader(runs.before), "");
    benchmark::DoNotOptimize(render(experiment_report(data, {}), Format::html));
  }
}

void compare_bench(benchmark::State& state) {
  const Runs& runs = runs_of(state);
  for ([[maybe_unused]] auto _ : state) {
    const ExperimentData before = read_run(results::ResultsReader(runs.before), "");
    const ExperimentData after = read_run(results::ResultsReader(runs.after), "");
    benchmark::DoNotOptimize(render(compare(before, after, {}).document, Format::markdown));
  }
}

/// Registered size by size, so that both find the databases of a size.
void register_sizes() {
  constexpr Size kSizes[] = {{20, 5, 10}, {20, 5, 100}, {20, 5, 1000}, {5, 5, 100}, {80, 5, 100}, {80, 10, 125}};
  for (const Size& size : kSizes) {
    for (const auto& [name, bench] : {std::pair{"report", &report_bench}, std::pair{"compare", &compare_bench}}) {
      benchmark::RegisterBenchmark(name, bench)
          ->ArgNames({"methods", "workloads", "samples"})
          ->Args({size.methods, size.workloads, size.samples})
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace kvarena::reports

int main(int argc, char** argv) {
  using namespace kvarena::reports;
  benchmark::Initialize(&argc, argv);
  folder = argc > 1 ? fs::path(argv[1]) : fs::temp_directory_path();
  register_sizes();
  benchmark::RunSpecifiedBenchmarks();
  open_runs.reset();
  return 0;
}
