#include "harness/device/weight_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/core/random.h"
#include "harness/model/latent_rows.h"
#include "harness/model/split_checkpoint.h"
#include "harness/model/weight_loader.h"

namespace kvarena::device {
namespace {

class CheckpointSource final : public WeightSource {
 public:
  CheckpointSource(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype)
      : config_(config), split_(checkpoint, config), load_(split_, dtype, kernels::Arithmetic::exact) {}
  [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t size) override {
    return load_.vector(name, size);
  }
  void read_blocks(const std::string& name, int64_t n, int64_t k, const RowBlocks& body) override {
    for (int64_t first = 0; first < n; first += kStagedRows) {
      const int64_t count = std::min(kStagedRows, n - first);
      body(first, count, load_.rows(name, {n, k}, first, count).data());
    }
  }
  void read_expansion(const std::string& attention, const HeadMatrices& body) override {
    LatentExpansion expansion(load_, config_, attention);
    for (int64_t head = 0; head < config_.q_heads; ++head) body(expansion.to_latent(head), expansion.to_value(head));
  }
  void layer_done(const std::string& prefix) override { load_.expect_all_read(prefix, config_.architecture); }

 private:
  const ModelConfig& config_;
  SplitCheckpoint split_;
  WeightLoader load_;
};

class RandomSource final : public WeightSource {
 public:
  RandomSource(const ModelConfig& config, uint64_t seed) : config_(config), seed_(seed) {}
  [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t size) override {
    return std::vector<float>(static_cast<size_t>(size), name.ends_with("bias") ? 0.0F : 1.0F);
  }
  void read_blocks(const std::string& /*name*/, int64_t n, int64_t k, const RowBlocks& body) override {
    const std::vector<float>& block = block_of(k);
    for (int64_t first = 0; first < n; first += kStagedRows)
      body(first, std::min(kStagedRows, n - first), block.data());
  }
  void read_expansion(const std::string& /*attention*/, const HeadMatrices& body) override {
    const LatentAttentionConfig& latent = config_.latent;
    const auto some = [&](int64_t n, int64_t k) {
      const std::vector<float>& block = block_of(k);
      std::vector<float> rows(static_cast<size_t>(n * k));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = block[i % block.size()];
      return rows;
    };
    for (int64_t head = 0; head < config_.q_heads; ++head) {
      body(some(latent.width(), latent.nope_head_dim), some(latent.v_head_dim, latent.width()));
    }
  }
  void layer_done(const std::string& /*prefix*/) override {}

 private:
  /// [kStagedRows, k] of variance 1 / k.
  [[nodiscard]] const std::vector<float>& block_of(int64_t k) {
    std::vector<float>& block = blocks_[k];
    if (block.empty()) {
      const RandomStream stream(seed_, fmt::format("weights of {} columns", k));
      const double width = 2 * std::sqrt(3 / static_cast<double>(k));
      block.resize(static_cast<size_t>(kStagedRows * k));
      for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<float>(width * (stream.uniform(i) - 0.5));
    }
    return block;
  }

  const ModelConfig& config_;
  uint64_t seed_;
  std::map<int64_t, std::vector<float>> blocks_;  // by columns
};

}  // namespace

std::unique_ptr<WeightSource> checkpoint_source(const ModelConfig& config, const Checkpoint& checkpoint,
                                                kernels::DType dtype) {
  return std::make_unique<CheckpointSource>(config, checkpoint, dtype);
}

std::unique_ptr<WeightSource> random_source(const ModelConfig& config, uint64_t seed) {
  return std::make_unique<RandomSource>(config, seed);
}

}  // namespace kvarena::device
