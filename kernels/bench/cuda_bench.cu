// kvarena-cuda-bench: the device kernels' microbenchmark, with the device's own limit measured in the same run.
//
//   kvarena-cuda-bench [--only TEXT] [--samples N] [--shrink N] [--out FILE.json]
//
// Each row is recorded as a graph over enough copies of its problem that the caches do not hold them, and timed by
// events; its figure is the median of the samples, its limit a copy of 512 MiB on the device taken before each sample
// (bytes read and bytes written are both counted). --shrink divides context lengths: to see that the program runs, not
// to measure.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "kernels/attention_sums/attention_sums_cuda.h"
#include "kernels/bench/device_problem.cuh"
#include "kernels/bench/device_program.h"
#include "kernels/cells/cells_cuda.h"
#include "kernels/column_sums/column_sums_cuda.h"
#include "kernels/entry_rows/entry_rows_cuda.h"
#include "kernels/hadamard/hadamard_cuda.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/page_bounds/page_bounds_cuda.h"
#include "kernels/quantize/quantize_cuda.h"
#include "kernels/top_k/top_k_cuda.h"

namespace kvarena::kernels::bench {
namespace {

class Timer {
 public:
  Timer() {
    cuda_check(cudaEventCreate(&begin_), "making an event");
    cuda_check(cudaEventCreate(&end_), "making an event");
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  [[nodiscard]] double seconds(CudaStream stream, const std::function<void()>& work) const {
    cuda_check(cudaEventRecord(begin_, stream), "recording an event");
    work();
    cuda_check(cudaEventRecord(end_, stream), "recording an event");
    cuda_check(cudaEventSynchronize(end_), "waiting for an event");
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading a timer");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

struct Row {
  std::string name;
  int64_t bytes = 0;                    // bytes that one iteration must move
  int64_t flops = 0;                    // 0: not stated
  std::vector<double> seconds, limits;  // seconds of one iteration; limits in bytes a second
};

class Bench {
 public:
  explicit Bench(const DeviceOptions& options)
      : options_(options), probe_bytes_((int64_t{512} << 20) / options.shrink), from_(probe_bytes_), to_(probe_bytes_) {
    fill(from_.data(), probe_bytes_, Fill::bits, 1, stream());
  }

  [[nodiscard]] CudaStream stream() const { return queue_.stream(); }
  [[nodiscard]] bool wants(const std::string& name) const { return name.find(options_.only) != std::string::npos; }
  [[nodiscard]] int64_t shrunk(int64_t count) const { return std::max<int64_t>(64, count / options_.shrink / 16 * 16); }
  /// Copies of a problem that no cache of the device holds together.
  [[nodiscard]] int64_t copies_for(int64_t bytes) const {
    return options_.shrink > 1 ? 1 : std::max<int64_t>(1, (int64_t{256} << 20) / std::max<int64_t>(1, bytes));
  }

  /// Times `iterations` iterations that `work` queues together.
  void time(const std::string& name, int64_t bytes, int64_t flops, int64_t iterations,
            const std::function<void()>& work) {
    const CudaGraph graph(stream(), work);
    const auto once = [&] { graph.launch(stream()); };
    (void)timer_.seconds(stream(), once);
    const double warm = timer_.seconds(stream(), once);
    const int64_t turns = options_.shrink > 1 ? 1 : std::clamp<int64_t>(static_cast<int64_t>(0.03 / warm), 1, 200);
    Row row{name, bytes, flops};
    for (int64_t sample = 0; sample < options_.samples; ++sample) {
      row.limits.push_back(copy_bandwidth());
      const double seconds = timer_.seconds(stream(), [&] {
        for (int64_t t = 0; t < turns; ++t) once();
      });
      row.seconds.push_back(seconds / static_cast<double>(turns * iterations));
    }
    print(row);
    rows_.push_back(row);
  }

  void write(std::ostream& to) const {
    to << "{\n \"rows\": [\n";
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      to << "  {\"name\": \"" << row.name << "\", \"bytes\": " << row.bytes << ", \"flops\": " << row.flops
         << ", \"seconds\": " << list(row.seconds) << ", \"copy_bytes_per_second\": " << list(row.limits) << "}"
         << (i + 1 < rows_.size() ? ",\n" : "\n");
    }
    to << " ]\n}\n";
  }

 private:
  double copy_bandwidth() {
    constexpr int kCopies = 4;
    const double seconds = timer_.seconds(stream(), [&] {
      for (int i = 0; i < kCopies; ++i) {
        cuda_check(cudaMemcpyAsync(to_.data(), from_.data(), static_cast<size_t>(probe_bytes_),
                                   cudaMemcpyDeviceToDevice, stream()),
                   "copying on the device");
      }
    });
    return 2.0 * kCopies * static_cast<double>(probe_bytes_) / seconds;
  }
  static void print(const Row& row) {
    const double seconds = median(row.seconds), limit = median(row.limits);
    const double bandwidth = static_cast<double>(row.bytes) / seconds;
    std::printf("%-44s %10.1f us %8.0f GB/s %5.1f%% of copy", row.name.c_str(), seconds * 1e6, bandwidth / 1e9,
                100 * bandwidth / limit);
    if (row.flops > 0) std::printf(" %8.1f TFLOP/s", static_cast<double>(row.flops) / seconds / 1e12);
    std::printf("\n");
    std::fflush(stdout);
  }

  DeviceOptions options_;
  int64_t probe_bytes_;
  CudaQueue queue_;
  CudaBuffer from_, to_;
  Timer timer_;
  std::vector<Row> rows_;
};

constexpr DeviceShape kLlama{32, 8, 128};  // Llama-3.1-8B

std::string thousands(int64_t count) {
  return count % 1024 == 0 ? std::to_string(count / 1024) + "k" : std::to_string(count);
}

/// Attention over copies of a layer that `make` makes.
void bench_attend(Bench& bench, const std::string& name, int64_t q_len, int64_t visible,
                  const std::function<std::unique_ptr<DeviceLayer>()>& make, int64_t bytes = 0) {
  if (!bench.wants(name)) return;
  std::vector<std::unique_ptr<DeviceLayer>> layers;
  layers.push_back(make());
  const int64_t copies = bench.copies_for(layers[0]->bytes());
  while (static_cast<int64_t>(layers.size()) < copies) layers.push_back(make());
  const auto sequences = static_cast<int64_t>(layers[0]->problems().size());
  CudaScratch scratch;
  bench.time(name, bytes > 0 ? bytes : layers[0]->bytes(),
             4 * kLlama.q_heads * kLlama.head_dim * sequences * visible * q_len, copies, [&] {
               for (const auto& layer : layers) layer->attend(scratch, bench.stream());
             });
}

void bench_dense(Bench& bench) {
  for (const auto& [sequences, context] :
       {std::pair<int64_t, int64_t>{1, 8192}, {1, 32768}, {1, 131072}, {8, 16384}, {8, 32768}}) {
    const int64_t entries = bench.shrunk(context);
    bench_attend(bench, "decode bf16 batch " + std::to_string(sequences) + " " + thousands(context), 1, entries, [&] {
      return std::make_unique<DeviceLayer>(kLlama, DType::bf16, sequences, entries, 1, bench.stream());
    });
  }
  const int64_t entries = bench.shrunk(32768);
  for (const DType dtype : {DType::f32, DType::f16}) {
    bench_attend(bench, std::string("decode ") + name_of(dtype) + " batch 1 32k", 1, entries,
                 [&] { return std::make_unique<DeviceLayer>(kLlama, dtype, 1, entries, 1, bench.stream()); });
  }
  bench_attend(bench, "verify 26 tokens bf16 batch 1 32k", 26, entries,
               [&] { return std::make_unique<DeviceLayer>(kLlama, DType::bf16, 1, entries, 26, bench.stream()); });
  for (const int64_t tokens : {2048, 8192}) {
    const int64_t n = bench.shrunk(tokens);
    bench_attend(bench, "prefill bf16 " + thousands(tokens), n, n / 2,
                 [&] { return std::make_unique<DeviceLayer>(kLlama, DType::bf16, 1, n, n, bench.stream()); });
  }
}

void bench_packed(Bench& bench) {
  const int64_t entries = bench.shrunk(32768);
  for (const int bits : {8, 4, 3, 2, 1}) {
    bench_attend(bench, "decode " + std::to_string(bits) + " bit batch 8 32k", 1, entries, [&] {
      return std::make_unique<DeviceLayer>(
          kLlama, QuantFormat{.bits = bits, .rule = bits == 1 ? QuantRule::midpoint : QuantRule::minimum}, 8, entries,
          1, bench.stream());
    });
  }
}

/// 2048 of 32768 entries: pages of 16, or single ones.
void bench_indexed(Bench& bench) {
  const int64_t entries = bench.shrunk(32768), chosen = entries / 16;
  for (const bool pages : {true, false}) {
    std::vector<int32_t> index;
    for (int64_t i = 0; i < chosen; ++i) {
      index.push_back(static_cast<int32_t>(pages ? i / 16 * 256 + i % 16 : i * 16 + i % 16));
    }
    const int64_t bytes = chosen * 2 * kLlama.head_dim * 2 * kLlama.kv_heads;
    bench_attend(
        bench, std::string("decode bf16 2048 of 32k by ") + (pages ? "pages" : "entries"), 1, chosen,
        [&] {
          auto layer = std::make_unique<DeviceLayer>(kLlama, DType::bf16, 1, entries, 1, bench.stream());
          auto* device = static_cast<int32_t*>(layer->memory(chosen * 4, Fill::bits, bench.stream()));
          cuda_upload(device, index.data(), chosen * 4, bench.stream());
          cuda_synchronize(bench.stream());
          for (HeadRun& run : layer->runs()) {
            run.index = device;
            run.index_count = chosen;
          }
          return layer;
        },
        bytes);
  }
}

void bench_sums(Bench& bench) {
  const int64_t entries = bench.shrunk(32768), tokens = 32;
  const std::string name = "column sums, last 32 queries, bf16 32k";
  if (!bench.wants(name)) return;
  DeviceLayer layer(kLlama, DType::bf16, 1, entries, tokens, bench.stream());
  const AttendProblem& p = layer.problems()[0];
  const ColumnSumsProblem problem{
      p.q,
      tokens,
      p.q_token_stride,
      p.q_head_stride,
      static_cast<const float*>(p.state.sum),
      p.runs,
      DType::bf16,
      true,
      0,
      static_cast<float*>(layer.memory(kLlama.q_heads * entries * 4, Fill::f32, bench.stream())),
      entries};
  CudaScratch scratch;
  bench.time(name, layer.bytes() / 2, 2 * kLlama.q_heads * kLlama.head_dim * tokens * entries, 1, [&] {
    column_sums_cuda({{&problem, 1}, kLlama.q_heads, kLlama.kv_heads, kLlama.head_dim, 0.08f}, scratch, bench.stream());
  });
}

/// Sums over probabilities that lie on the device, 16 tokens of a prompt of 32k.
void bench_statistics(Bench& bench) {
  const int64_t entries = bench.shrunk(32768), tokens = 16, numbers = tokens * kLlama.q_heads * entries;
  const CudaBuffer given(numbers * 4), sums(kLlama.kv_heads * 2 * entries * 4);
  fill(given.data(), given.bytes(), Fill::f32, 4, bench.stream());
  fill(sums.data(), sums.bytes(), Fill::f32, 5, bench.stream());
  const DeviceProbabilities rows{
      static_cast<const float*>(given.data()), tokens, kLlama.q_heads, kLlama.kv_heads, entries, entries - tokens};
  auto* const to = static_cast<float*>(sums.data());
  const std::string moments = "moments, 16 tokens 32k", perturbed = "perturbed sums, 16 tokens 32k";
  if (bench.wants(moments))
    bench.time(moments, given.bytes(), 4 * numbers, 1, [&] { add_moments_cuda(rows, to, entries, bench.stream()); });
  if (!bench.wants(perturbed)) return;
  const PerturbedSum what{.tau = 1.2f, .noise = [](int64_t head, int64_t position) {
                            return static_cast<uint64_t>(position) << 8 | static_cast<uint64_t>(head);
                          }};
  DeviceGumbelTable table;
  (void)table.data(bench.stream());  // not in the recording
  CudaScratch scratch;
  bench.time(perturbed, 2 * given.bytes(), 8 * numbers, 1,
             [&] { add_perturbed_cuda(rows, what, to, entries, table, scratch, bench.stream()); });
}

void bench_packing(Bench& bench) {
  const int64_t entries = bench.shrunk(32768), dim = kLlama.head_dim;
  const CudaBuffer rows(entries * dim * 4);
  fill(rows.data(), rows.bytes(), Fill::f32, 3, bench.stream());
  for (const int bits : {4, 2}) {
    for (const CellKind kind : {CellKind::keys, CellKind::values}) {
      const QuantFormat format{.bits = bits};
      const std::string name = std::string("pack ") + (kind == CellKind::keys ? "keys" : "values") + " " +
                               std::to_string(bits) + " bit, 8 heads 32k";
      if (!bench.wants(name)) continue;
      const int64_t meta = packed_meta_count(kind, entries, dim, format),
                    codes = packed_code_dwords(entries, dim, bits);
      const CudaBuffer packed(codes * 4), scales(meta * 2), zeros(meta * 2);
      const PackedEntries to{kind,
                             format,
                             dim,
                             static_cast<uint32_t*>(packed.data()),
                             static_cast<uint16_t*>(scales.data()),
                             static_cast<uint16_t*>(zeros.data())};
      const std::vector<RowEncode> items(static_cast<size_t>(kLlama.kv_heads),
                                         {to, 0, entries, static_cast<const float*>(rows.data()), dim});
      CudaScratch scratch;
      bench.time(name, kLlama.kv_heads * (entries * dim * 4 + codes * 4 + meta * 4), 0, 1,
                 [&] { encode_rows_cuda(items, scratch, bench.stream()); });
    }
  }
}

/// Times the dequantisation of 2048 entries, step by step.
void bench_restoring(Bench& bench) {
  const int64_t entries = bench.shrunk(2048), dim = kLlama.head_dim, heads = kLlama.kv_heads, rank = 4, half = dim / 2;
  const CudaBuffer memory(entries * heads * dim * 4), tables(2 * entries * half * 4);
  fill(memory.data(), memory.bytes(), Fill::f32, 6, bench.stream());
  fill(tables.data(), tables.bytes(), Fill::f32, 7, bench.stream());
  const EntryRows rows{static_cast<float*>(memory.data()), entries, heads, dim};
  const QuantFormat format{.bits = 4};
  const int64_t codes = packed_code_dwords(entries, dim, 4) * 4;
  const int64_t meta = packed_meta_count(CellKind::keys, entries, dim, format) * 2;
  const CudaBuffer packed(heads * codes), scales(meta), zeros(meta), factors((entries + dim) * rank * 2);
  for (const CudaBuffer* buffer : {&packed, &scales, &zeros, &factors})
    fill(buffer->data(), buffer->bytes(), Fill::bf16, 8, bench.stream());
  std::vector<RowDecode> items;
  std::vector<RowProduct> products;
  for (int64_t h = 0; h < heads; ++h) {
    auto* const own = reinterpret_cast<uint32_t*>(static_cast<char*>(packed.data()) + h * codes);
    items.push_back({{CellKind::keys, format, dim, own, static_cast<uint16_t*>(scales.data()),
                      static_cast<uint16_t*>(zeros.data())},
                     0,
                     entries,
                     rows.x + h * dim,
                     rows.width()});
    products.push_back({rows.x + h * dim, rows.width(), entries, dim, rank, DType::bf16, factors.data(),
                        static_cast<char*>(factors.data()) + entries * rank * 2});
  }
  const auto width = static_cast<int32_t>(rows.width());
  std::vector<int32_t> positions, starts;
  std::vector<PlacedNumber> numbers;
  for (int32_t i = 0; i < entries * heads; ++i) positions.push_back(i / static_cast<int32_t>(heads));
  for (int32_t i = 0; i <= entries; ++i) starts.push_back(i * (width / 100));
  for (int32_t i = 0; i < starts.back(); ++i) numbers.push_back({i * 97 % width, 1.0f});
  const CudaBuffer placed(std::ssize(numbers) * 8), from(std::ssize(starts) * 4), at(std::ssize(positions) * 4);
  cuda_upload(placed.data(), numbers.data(), placed.bytes(), bench.stream());
  cuda_upload(from.data(), starts.data(), from.bytes(), bench.stream());
  cuda_upload(at.data(), positions.data(), at.bytes(), bench.stream());
  cuda_synchronize(bench.stream());
  CudaScratch scratch;
  const auto time = [&](const char* what, int64_t bytes, const std::function<void()>& work) {
    const std::string name = std::string(what) + ", 8 heads 2048 entries";
    if (bench.wants(name)) bench.time(name, bytes, 0, 1, work);
  };
  const int64_t both = 2 * memory.bytes();
  time("decode 4 bits to rows", memory.bytes() + packed.bytes(),
       [&] { decode_rows_cuda(items, scratch, bench.stream()); });
  time("add products of rank 4", both, [&] { add_products_cuda(products, scratch, bench.stream()); });
  time("place 1 number in 100", placed.bytes() + from.bytes(), [&] {
    place_numbers_cuda(rows, static_cast<const int32_t*>(from.data()), static_cast<const PlacedNumber*>(placed.data()),
                       bench.stream());
  });
  const auto* const cos = static_cast<const float*>(tables.data());
  time("turn keys", both + tables.bytes(), [&] {
    rotate_rows_cuda(rows, {static_cast<const int32_t*>(at.data()), cos, cos + entries * half, half}, bench.stream());
  });
}

void bench_selection(Bench& bench) {
  const int64_t entries = bench.shrunk(32768), dim = kLlama.head_dim, pages = entries / kCell, heads = kLlama.q_heads;
  DeviceLayer layer(kLlama, DType::bf16, 1, entries, 1, bench.stream());
  auto* scores = static_cast<float*>(layer.memory(heads * entries * 4, Fill::f32, bench.stream()));
  auto* index = static_cast<int32_t*>(layer.memory(heads * entries * 4, Fill::f32, bench.stream()));
  std::vector<BoundsUpdate> updates;
  std::vector<PageScoring> scorings;
  for (int64_t h = 0; h < kLlama.kv_heads; ++h) {
    const PageBounds bounds{static_cast<float*>(layer.memory(pages * dim * 4, Fill::f32, bench.stream())),
                            static_cast<float*>(layer.memory(pages * dim * 4, Fill::f32, bench.stream()))};
    void* keys = const_cast<void*>(layer.runs()[static_cast<size_t>(h)].keys);
    updates.push_back({{CellKind::keys, DType::bf16, dim, keys}, 0, entries, bounds});
    scorings.push_back({layer.problems()[0].q, 4, dim, bounds, pages, dim, scores + 4 * h * entries, entries});
  }
  CudaScratch scratch;
  if (bench.wants("page bounds, 8 heads 32k")) {
    bench.time("page bounds, 8 heads 32k", kLlama.kv_heads * (entries * dim * 2 + pages * dim * 8), 0, 1,
               [&] { update_page_bounds_cuda(updates, scratch, bench.stream()); });
  }
  if (bench.wants("page scores, 32 rows 32k")) {
    bench.time("page scores, 32 rows 32k", kLlama.kv_heads * pages * dim * 8, 0, 1,
               [&] { page_scores_cuda(scorings, scratch, bench.stream()); });
  }
  if (bench.wants("top-k, 2048 of 32k, 32 rows")) {
    bench.time("top-k, 2048 of 32k, 32 rows", heads * entries * 4, 0, 1, [&] {
      top_k_rows_cuda(scores, heads, entries, entries, entries / 16, index, index + heads * entries / 16,
                      bench.stream());
    });
  }
  if (bench.wants("hadamard 128, 32k rows")) {
    bench.time("hadamard 128, 32k rows", entries * dim * 8, 0, 1,
               [&, x = layer.memory(entries * dim * 4, Fill::f32, bench.stream())] {
                 hadamard_cuda(static_cast<float*>(x), entries, dim, dim, bench.stream());
               });
  }
}

/// Products of Llama-3.1-8B's layers: one row, a batch, a verification run, a prefill.
void bench_matmul(Bench& bench) {
  struct Named {
    const char* name;
    int64_t n, k;
  };
  for (const Named& shape : {Named{"qkv", 6144, 4096},
                             {"output", 4096, 4096},
                             {"gate and up", 28672, 4096},
                             {"down", 4096, 14336},
                             {"head", 128256, 4096}}) {
    for (const int64_t m : {1, 8, 26, 2048}) {
      const std::string name = std::string("matmul bf16 ") + shape.name + ", " + std::to_string(m) + " rows";
      if (!bench.wants(name)) continue;
      const int64_t n = bench.shrunk(shape.n), k = bench.shrunk(shape.k), rows = m == 2048 ? bench.shrunk(m) : m;
      const CudaBuffer x(rows * k * 4), y(rows * n * 4);
      fill(x.data(), x.bytes(), Fill::f32, 4, bench.stream());
      std::vector<DeviceMatrix> copies;
      const int64_t count = m == 2048 ? 1 : bench.copies_for(n * k * 2);
      while (static_cast<int64_t>(copies.size()) < count) {
        copies.emplace_back(n, k, DType::bf16);
        fill(const_cast<void*>(copies.back().data()), copies.back().bytes(), Fill::bf16, 5, bench.stream());
      }
      bench.time(name, n * k * 2 + rows * (n + k) * 4, 2 * rows * n * k, count, [&] {
        for (const DeviceMatrix& w : copies) {
          matmul_cuda({static_cast<const float*>(x.data()), rows, k, &w, nullptr, static_cast<float*>(y.data()), n},
                      bench.stream());
        }
      });
    }
  }
}

/// Times copies from pinned host memory: in one piece, and 2048 tokens of 8 heads as pages and as single entries that
/// the device reads in place.
void bench_fetch(Bench& bench) {
  const int64_t entries = bench.shrunk(32768), chosen = entries / 16, dim = kLlama.head_dim, heads = kLlama.kv_heads;
  const int64_t head_bytes = cell_bytes(entries, dim, DType::bf16);
  const PinnedBuffer host(2 * heads * head_bytes);
  std::memset(host.data(), 0x3f, static_cast<size_t>(2 * heads * head_bytes));
  const CudaBuffer device(2 * heads * head_bytes);
  if (bench.wants("fetch, contiguous")) {
    bench.time("fetch, contiguous", 2 * heads * head_bytes, 0, 1,
               [&] { cuda_upload(device.data(), host.data(), 2 * heads * head_bytes, bench.stream()); });
  }
  if (!bench.wants("fetch, 2048 tokens by pages")) return;
  std::vector<int32_t> pages;
  for (int64_t i = 0; i < chosen; ++i) pages.push_back(static_cast<int32_t>(i / 16 * 256 + i % 16));
  const CudaBuffer index(chosen * 4);
  cuda_upload(index.data(), pages.data(), chosen * 4, bench.stream());
  std::vector<EntryGather> gathers;
  for (int64_t i = 0; i < 2 * heads; ++i) {
    const CellKind kind = i % 2 == 0 ? CellKind::keys : CellKind::values;
    gathers.push_back({{kind, DType::bf16, dim, static_cast<char*>(host.data()) + i * head_bytes},
                       static_cast<const int32_t*>(index.data()),
                       chosen,
                       {kind, DType::bf16, dim, static_cast<char*>(device.data()) + i * head_bytes},
                       0});
  }
  CudaScratch scratch;
  cuda_synchronize(bench.stream());
  bench.time("fetch, 2048 tokens by pages", 2 * heads * chosen * dim * 2, 0, 1,
             [&] { gather_entries_cuda(gathers, scratch, bench.stream()); });
  std::vector<int32_t> sources;  // all of them in pinned memory, where keys lie entry by entry
  for (int64_t i = 0; i < chosen; ++i) sources.push_back(~static_cast<int32_t>(i * 16 + i % 16));
  cuda_upload(index.data(), sources.data(), chosen * 4, bench.stream());
  cuda_synchronize(bench.stream());
  std::vector<EntryMerge> merges;
  for (const EntryGather& gather : gathers) {
    Cells far = gather.from;
    far.kind = CellKind::values;
    merges.push_back({far, far, gather.index, chosen, gather.to});
  }
  bench.time("fetch, 2048 tokens by entries", 2 * heads * chosen * dim * 2, 0, 1,
             [&] { merge_entries_cuda(merges, scratch, bench.stream()); });
}

void run(Bench& bench) {
  bench_dense(bench);
  bench_packed(bench);
  bench_indexed(bench);
  bench_sums(bench);
  bench_statistics(bench);
  bench_packing(bench);
  bench_restoring(bench);
  bench_selection(bench);
  bench_matmul(bench);
  bench_fetch(bench);
}

}  // namespace
}  // namespace kvarena::kernels::bench

int main(int argc, char** argv) {
  using namespace kvarena::kernels::bench;
  return device_program<Bench>("kvarena-cuda-bench", argc, argv, run);
}
