#include "harness/device/device_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "harness/model/architectures/architecture.h"
#include "harness/model/weight_loader.h"
#include "kernels/cells/cells.h"

namespace kvarena::device {
namespace {

using kernels::DeviceMatrix;
constexpr int64_t kStagedRows = 512;

/// A matrix of a tensor's name, or of several under each other.
struct Part {
  std::string stem;  // the tensor's name without ".weight" and ".bias"
  int64_t rows = 0;
};

/// Takes rows first .. first+count-1, [count, k].
using RowBlocks = std::function<void(int64_t first, int64_t count, const float* rows)>;

/// Where numbers come from: a checkpoint's tensors or a generator.
class Source {
 public:
  virtual ~Source() = default;
  [[nodiscard]] virtual std::vector<float> vector(const std::string& name, int64_t size) = 0;
  /// Calls body for blocks of up to kStagedRows rows of a matrix [n, k].
  virtual void read_blocks(const std::string& name, int64_t n, int64_t k, const RowBlocks& body) = 0;
  /// After a layer whose tensors' names begin with `prefix`.
  virtual void layer_done(const std::string& prefix) = 0;
};

class CheckpointSource final : public Source {
 public:
  CheckpointSource(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype)
      : config_(config), load_(checkpoint, dtype, Share{}) {}
  [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t size) override {
    return load_.vector(name, size);
  }
  void read_blocks(const std::string& name, int64_t n, int64_t k, const RowBlocks& body) override {
    for (int64_t first = 0; first < n; first += kStagedRows) {
      const int64_t count = std::min(kStagedRows, n - first);
      body(first, count, load_.rows(name, {n, k}, first, count).data());
    }
  }
  void layer_done(const std::string& prefix) override { load_.expect_all_read(prefix, config_.architecture); }

 private:
  const ModelConfig& config_;
  WeightLoader load_;
};

class RandomSource final : public Source {
 public:
  explicit RandomSource(uint64_t seed) : seed_(seed) {}
  [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t size) override {
    return std::vector<float>(static_cast<size_t>(size), name.ends_with("bias") ? 0.0F : 1.0F);
  }
  void read_blocks(const std::string& /*name*/, int64_t n, int64_t k, const RowBlocks& body) override {
    std::vector<float>& block = blocks_[k];  // [kStagedRows, k] of variance 1 / k
    if (block.empty()) {
      const RandomStream stream(seed_, fmt::format("weights of {} columns", k));
      const double width = 2 * std::sqrt(3 / static_cast<double>(k));
      block.resize(static_cast<size_t>(kStagedRows * k));
      for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<float>(width * (stream.uniform(i) - 0.5));
    }
    for (int64_t first = 0; first < n; first += kStagedRows)
      body(first, std::min(kStagedRows, n - first), block.data());
  }
  void layer_done(const std::string& /*prefix*/) override {}

 private:
  uint64_t seed_;
  std::map<int64_t, std::vector<float>> blocks_;  // by columns
};

/// Makes weights of what a source gives.
class Uploader {
 public:
  Uploader(const ModelConfig& config, Source& source, kernels::DType dtype)
      : config_(config), names_(architecture_of(config).tensors), source_(source), dtype_(dtype) {}

  [[nodiscard]] DeviceWeights weights() {
    DeviceWeights all;
    all.embedding = matrix({{std::string(names_.embedding), config_.vocab_size}}, config_.hidden_size);
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string base = fmt::format("{}{}.", names_.layer, layer);
      all.layers.push_back(layer_weights(base));
      source_.layer_done(base);
    }
    all.final_norm = vector(std::string(names_.final_norm), config_.hidden_size);
    if (!config_.tie_embeddings) {
      all.lm_head = matrix({{std::string(names_.head), config_.vocab_size}}, config_.hidden_size);
    }
    all.matrix_bytes = matrix_bytes_;
    return all;
  }

 private:
  [[nodiscard]] DeviceLayerWeights layer_weights(const std::string& base) {
    const auto name = [&](std::string_view part) { return base + std::string(part); };
    const int64_t q = config_.q_heads * config_.head_dim, kv = config_.kv_heads * config_.head_dim;
    const int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    DeviceLayerWeights layer;
    layer.attention_norm = vector(name(names_.attention_norm), hidden);
    layer.qkv = projection({{name(names_.q), q}, {name(names_.k), kv}, {name(names_.v), kv}}, hidden, config_.qkv_bias);
    if (config_.qk_norm) {
      layer.q_norm = vector(name(names_.q_norm), config_.head_dim);
      layer.k_norm = vector(name(names_.k_norm), config_.head_dim);
    }
    layer.output = projection({{name(names_.output), hidden}}, q, config_.output_bias);
    layer.mlp_norm = vector(name(names_.mlp_norm), hidden);
    const std::string mlp = name(names_.mlp);
    layer.gate_up = projection({{mlp + std::string(names_.gate), inner}, {mlp + std::string(names_.up), inner}}, hidden,
                               config_.mlp_bias);
    layer.down = projection({{mlp + std::string(names_.down), hidden}}, inner, config_.mlp_bias);
    return layer;
  }

  [[nodiscard]] DeviceVector vector(const std::string& name, int64_t size) {
    return DeviceVector(source_.vector(name, size));
  }

  [[nodiscard]] DeviceMatrix matrix(const std::vector<Part>& parts, int64_t k) {
    int64_t total = 0;
    for (const Part& part : parts) total += part.rows;
    DeviceMatrix made(total, k, dtype_);
    matrix_bytes_ += made.bytes();
    staged_.reserve(kStagedRows * k * 4);
    auto* staged = static_cast<float*>(staged_.data());
    int64_t begin = 0;
    for (const Part& part : parts) {
      source_.read_blocks(part.stem + ".weight", part.rows, k, [&](int64_t first, int64_t count, const float* rows) {
        kernels::cuda_upload(staged, rows, count * k * 4, nullptr);
        made.store_rows(begin + first, count, staged, k, nullptr);
        kernels::cuda_synchronize(nullptr);
      });
      begin += part.rows;
    }
    return made;
  }

  [[nodiscard]] DeviceProjection projection(const std::vector<Part>& parts, int64_t k, bool bias) {
    DeviceProjection made{.matrix = matrix(parts, k)};
    if (!bias) return made;
    std::vector<float> all;
    for (const Part& part : parts) {
      const std::vector<float> one = source_.vector(part.stem + ".bias", part.rows);
      all.insert(all.end(), one.begin(), one.end());
    }
    made.bias = DeviceVector(all);
    return made;
  }

  const ModelConfig& config_;
  const TensorNames& names_;
  Source& source_;
  kernels::DType dtype_;
  kernels::CudaBuffer staged_;  // [kStagedRows, k] of float32
  int64_t matrix_bytes_ = 0;
};

}  // namespace

DeviceVector::DeviceVector(const std::vector<float>& host) : data_(static_cast<int64_t>(host.size()) * 4) {
  kernels::cuda_upload(data_.data(), host.data(), data_.bytes(), nullptr);
  kernels::cuda_synchronize(nullptr);
}

void require_runs_on_device(const ModelConfig& config) {
  const auto refuse = [&](std::string found, std::string expected) {
    fail({.place = fmt::format("{} on the device", config.name),
          .found = std::move(found),
          .expected = std::move(expected),
          .action = "run this model on the host"});
  };
  if (config.is_latent()) refuse("latent attention", "keys and values of heads");
  if (config.expert.experts > 0) refuse(fmt::format("{} experts", config.expert.experts), "dense feed-forward layers");
  if (config.head_dim % kernels::kCell != 0) {
    refuse(fmt::format("head_dim {}", config.head_dim), fmt::format("a multiple of {}", kernels::kCell));
  }
}

DeviceWeights load_device_weights(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype) {
  require_runs_on_device(config);
  CheckpointSource source(config, checkpoint, dtype);
  return Uploader(config, source, dtype).weights();
}

DeviceWeights random_device_weights(const ModelConfig& config, kernels::DType dtype, uint64_t seed) {
  require_runs_on_device(config);
  RandomSource source(seed);
  return Uploader(config, source, dtype).weights();
}

}  // namespace kvarena::device
