// Contiguous against scattered transfers (Jie et al. 2025, arXiv:2503.16163, figure 2, right): time on the link of keys
// and values of one layer, 8 kv heads of 128 channels in 16 bit, gathered entry by entry or in one piece.
// Arguments: entries of each head; link by its place in known_links().

#include <benchmark/benchmark.h>

#include <vector>

#include "harness/tiers/hierarchy.h"

namespace kvarena::tiers {
namespace {

constexpr int64_t kHeads = 8;
constexpr int64_t kEntryBytes = 128 * 2;  // a head's key or value
constexpr int64_t kContext = 32768;       // entries of a head on the host

/// `step` 1: neighbours; otherwise every step-th key or value.
void move_entries(benchmark::State& state, int64_t step) {
  const int64_t entries = 2 * kHeads * state.range(0);
  const Hierarchy tiers({{.tier = Tier::host, .link = known_links()[static_cast<size_t>(state.range(1))]}});
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto block = tiers.storage(Tier::host).allocate(ledger, 2 * kHeads * kContext * kEntryBytes);
  std::vector<std::byte> arrived(static_cast<size_t>(entries * kEntryBytes));
  std::vector<ReadPiece> pieces;
  for (int64_t i = 0; i < entries; ++i) {
    pieces.push_back({.at = i * step * kEntryBytes, .memory = arrived.data() + i * kEntryBytes, .bytes = kEntryBytes});
  }
  for ([[maybe_unused]] auto _ : state) {
    Transfer transfer = tiers.load(Tier::host).read(block, pieces);
    transfer.wait();
    state.SetIterationTime(transfer.link_seconds());
  }
  state.SetBytesProcessed(state.iterations() * entries * kEntryBytes);
  state.SetLabel(tiers.load(Tier::host).spec().name);
}

void contiguous(benchmark::State& state) { move_entries(state, 1); }
void scattered(benchmark::State& state) { move_entries(state, kContext / state.range(0)); }

constexpr int64_t kReal = 0;
constexpr int64_t kPcie4 = 2;

BENCHMARK(contiguous)
    ->UseManualTime()
    ->Args({kContext, kPcie4})
    ->Args({328, kPcie4})
    ->Args({kContext, kReal})
    ->Args({328, kReal});
BENCHMARK(scattered)->UseManualTime()->Args({328, kPcie4})->Args({64, kPcie4})->Args({328, kReal})->Args({64, kReal});

}  // namespace
}  // namespace kvarena::tiers

BENCHMARK_MAIN();
