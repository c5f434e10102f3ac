// kvarena-device-bench: whole decoding steps of Llama-3.1-8B's shapes on the device, with random weights.
//
//   kvarena-device-bench [--only TEXT] [--samples N] [--shrink N] [--out FILE.json]
//
// Rows as those of kvarena-cuda-bench: bytes that a step must read, seconds of a step (host and device together, a
// token for every sequence), and beside each sample what a copy on the device reached just before. Batches are what
// memory holds. --shrink divides lengths and takes a tiny model: to see that the program runs, not to measure.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>

#include "harness/core/random.h"
#include "harness/device/device_model.h"
#include "kernels/bench/device_program.h"

namespace kvarena::device {
namespace {

using kernels::bench::DeviceOptions;
using kernels::bench::list;
using kernels::bench::median;
using Clock = std::chrono::steady_clock;
using Lists = std::vector<std::vector<int32_t>>;

struct Row {
  std::string name;
  int64_t bytes = 0, tokens = 0;
  int64_t bus_bytes = 0;  // that came over the bus in a step
  std::vector<double> seconds, limits;
};

ModelConfig llama8b(bool tiny) {
  ModelConfig config;
  config.architecture = "llama";
  config.name = "Llama-3.1-8B shapes, random weights";
  config.layers = tiny ? 2 : 32;
  config.hidden_size = tiny ? 64 : 4096;
  config.q_heads = tiny ? 4 : 32;
  config.kv_heads = tiny ? 2 : 8;
  config.head_dim = tiny ? 32 : 128;
  config.intermediate_size = tiny ? 96 : 14336;
  config.vocab_size = tiny ? 128 : 128256;
  config.max_position = 131072;
  config.rope_theta = 500000;
  return config;
}

class Bench {
 public:
  explicit Bench(const DeviceOptions& options)
      : options_(options),
        model_(make_model(options, {})),
        from_((int64_t{512} << 20) / options.shrink),
        to_(from_.bytes()) {}

  void run() {
    const int64_t short_context = shrunk(8192), context = shrunk(32768);
    full("step 8B bf16 batch 1 8k", 1, short_context);
    full("step full KV batch 1 32k", 1, context);
    const int64_t sequence = bytes_of(context + kHeadroom);
    constexpr double kShare = 0.9;  // of free memory
    const auto held = [&](int64_t bytes) {
      return std::max<int64_t>(1, static_cast<int64_t>(kShare * static_cast<double>(bytes)) / sequence);
    };
    full("step full KV batch B 32k", std::min<int64_t>(256, held(kernels::cuda_free_bytes())), context);
    // Pinned memory is the machine's: not more than half of what is free.
    const int64_t free_pages = ::sysconf(_SC_AVPHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
    const int64_t most = options_.shrink > 1 ? 2 : std::min<int64_t>(64, held(free_pages * page / 2));
    chosen("step budget 2048 of 32k in host memory, batch 1, 85% kept", 1, context, 0.85);
    chosen("step budget 2048 of 32k in host memory, batch B, 85% kept", most, context, 0.85);
    chosen("step budget 2048 of 32k in host memory, batch B, all anew", most, context, 0);
    if (kernels::cuda_devices() > 1 && wants(kTwoDevices)) {
      std::vector<int64_t> halves(static_cast<size_t>(model_->config().layers), 0);
      std::fill(halves.begin() + std::ssize(halves) / 2, halves.end(), 1);
      model_.reset();
      model_ = make_model(options_, halves);
      full(kTwoDevices, 1, short_context);
    }
  }

  void write(std::ostream& to) const {
    to << "{\n \"rows\": [\n";
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      to << "  {\"name\": \"" << row.name << "\", \"bytes\": " << row.bytes
         << ", \"flops\": 0, \"tokens\": " << row.tokens << ", \"bus_bytes\": " << row.bus_bytes
         << ", \"seconds\": " << list(row.seconds) << ", \"copy_bytes_per_second\": " << list(row.limits) << "}"
         << (i + 1 < rows_.size() ? ",\n" : "\n");
    }
    to << " ]\n}\n";
  }

 private:
  static constexpr int64_t kHeadroom = 256;  // entries that steps add to a cache, at most
  static constexpr const char* kTwoDevices = "step 8B bf16 batch 1 8k, layers on two devices";

  [[nodiscard]] static std::unique_ptr<DeviceModel> make_model(const DeviceOptions& options,
                                                               std::vector<int64_t> devices) {
    return std::make_unique<DeviceModel>(
        DeviceModel::random(llama8b(options.shrink > 1),
                            {.weights = kernels::DType::bf16, .cache = kernels::DType::bf16}, 1, std::move(devices)));
  }
  [[nodiscard]] int64_t shrunk(int64_t count) const { return std::max<int64_t>(64, count / options_.shrink / 16 * 16); }
  /// Bytes of one sequence's entries.
  [[nodiscard]] int64_t bytes_of(int64_t entries) const {
    const ModelConfig& c = model_->config();
    return c.layers * c.kv_heads * c.head_dim * 2 * 2 * entries;
  }
  [[nodiscard]] bool wants(const std::string& name) const { return name.find(options_.only) != std::string::npos; }
  /// Weights that a step reads: all but the embedding's other rows.
  [[nodiscard]] int64_t step_weights() const {
    const ModelConfig& c = model_->config();
    return model_->weight_bytes() - c.vocab_size * c.hidden_size * 2;
  }

  [[nodiscard]] std::vector<DeviceCache> caches(Placement placement, int64_t batch, int64_t entries) const {
    std::vector<DeviceCache> made;
    for (int64_t i = 0; i < batch; ++i) {
      made.push_back(model_->make_cache(placement, entries + kHeadroom));
      made.back().fill(entries);
    }
    return made;
  }

  /// Steps of single tokens; all caches are taken back to `entries` before a sample.
  void time(Row row, std::vector<DeviceCache>& caches, int64_t entries,
            const std::function<const Lists*(int64_t)>& choose) {
    std::vector<int32_t> tokens(caches.size(), 1);
    std::vector<DevicePass> batch;
    const auto step = [&](int64_t number) {
      batch.clear();
      for (size_t i = 0; i < caches.size(); ++i) {
        batch.push_back({.tokens = {&tokens[i], 1}, .cache = &caches[i], .attended = choose(number)});
      }
      tokens = model_->largest(model_->forward(batch));
    };
    const int64_t steps = options_.shrink > 1 ? 1 : 16;
    int64_t number = 0;
    for (int64_t i = 0; i < 3; ++i) step(number++);  // records the step; fills windows
    for (int64_t sample = 0; sample < options_.samples; ++sample) {
      for (DeviceCache& cache : caches) cache.truncate(entries);
      step(number++);
      row.limits.push_back(copy_bandwidth());
      const auto start = Clock::now();
      for (int64_t i = 0; i < steps; ++i) step(number++);
      row.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(steps));
    }
    row.tokens = std::ssize(caches);
    for (const DeviceCache& cache : caches) row.bus_bytes += cache.fetched_bytes();
    print(row);
    rows_.push_back(row);
  }

  void full(const std::string& name, int64_t batch, int64_t entries) {
    if (!wants(name)) return;
    std::vector<DeviceCache> held = caches(Placement::device, batch, entries);
    time({.name = name, .bytes = step_weights() + batch * bytes_of(entries)}, held, entries,
         [](int64_t) { return nullptr; });
  }

  /// Choices of a budget, of which a share stays from step to step (SpeContext reports more than 80%).
  void chosen(const std::string& name, int64_t batch, int64_t entries, double kept) {
    if (!wants(name)) return;
    const int64_t budget = entries / 16, stride = entries / budget;
    std::vector<DeviceCache> held = caches(Placement::host, batch, entries);
    std::vector<Lists> rounds;  // every `stride`-th position, some of them moved by the round's number
    for (int64_t round = 0; round < stride; ++round) {
      Lists lists(static_cast<size_t>(model_->config().kv_heads));
      for (size_t h = 0; h < lists.size(); ++h) {
        const RandomStream stream(h, "moved");
        for (int64_t i = 0; i < budget; ++i) {
          const bool stays = stream.uniform(static_cast<uint64_t>(i)) < kept;
          lists[h].push_back(static_cast<int32_t>(i * stride + (stays ? 0 : round)));
        }
      }
      rounds.push_back(std::move(lists));
    }
    time({.name = name, .bytes = step_weights() + batch * bytes_of(budget)}, held, entries,
         [&](int64_t step) { return &rounds[static_cast<size_t>(step % stride)]; });
  }

  double copy_bandwidth() {
    constexpr int kCopies = 4;
    model_->synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < kCopies; ++i) kernels::cuda_copy(to_.data(), from_.data(), from_.bytes(), model_->stream());
    model_->synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return 2.0 * kCopies * static_cast<double>(from_.bytes()) / seconds;
  }

  static void print(const Row& row) {
    const double seconds = median(row.seconds);
    std::printf("%-72s batch %3lld %9.3f ms %9.1f tokens/s %5.1f%% of copy %8.1f MB over the bus\n", row.name.c_str(),
                static_cast<long long>(row.tokens), seconds * 1e3, static_cast<double>(row.tokens) / seconds,
                100 * static_cast<double>(row.bytes) / seconds / median(row.limits),
                static_cast<double>(row.bus_bytes) * 1e-6);
    std::fflush(stdout);
  }

  DeviceOptions options_;
  std::unique_ptr<DeviceModel> model_;
  kernels::CudaBuffer from_, to_;
  std::vector<Row> rows_;
};

}  // namespace
}  // namespace kvarena::device

int main(int argc, char** argv) {
  using kvarena::device::Bench;
  return kvarena::kernels::bench::device_program<Bench>("kvarena-device-bench", argc, argv,
                                                        [](Bench& bench) { bench.run(); });
}
