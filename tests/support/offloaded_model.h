#pragma once
// A tiny Transformer whose passes run on a device (emulated where there is none).

#include <memory>
#include <span>
#include <vector>

#include "harness/device/device_offload.h"
#include "tests/support/device_model.h"
#include "tests/support/differences.h"
#include "tests/support/spread_layers.h"
#include "tests/support/tiny_model.h"

namespace kvarena::device {

/// The tiny model with a device beside it.
class Offloaded {
 public:
  explicit Offloaded(int64_t cache_bytes = 1 << 30, const ModelConfig& config = testing::tiny_config())
      : model_(testing::tiny_model(1, kF32, config)) {
    const testing::RandomCheckpoint checkpoint(testing::llama_tensors(config), 1);
    auto device = std::make_unique<DeviceOffload>(DeviceModel(config, checkpoint, kF32, spread_layers(config.layers)),
                                                  cache_bytes);
    device_ = device.get();
    model_.offload_to(std::move(device));
  }
  [[nodiscard]] Transformer& model() { return model_; }
  [[nodiscard]] const DeviceOffload& device() const { return *device_; }

 private:
  Transformer model_;
  DeviceOffload* device_;
};

/// One sequence's pass; logits of all its tokens.
inline std::vector<float> fed(Transformer& model, KvCache& cache, std::span<const int32_t> tokens) {
  const SequencePass pass{.tokens = tokens, .cache = &cache, .logits = LogitsRows::all};
  const std::span<const float> logits = model.forward({&pass, 1});
  return {logits.begin(), logits.end()};
}

/// Feeds tokens: where the cache's copy followed it their logits are those of a copy made anew, and the host's.
inline void feed_as_anew(Transformer& host, Transformer& model, KvCache& cache, std::span<const int32_t> tokens) {
  KvCache there = cache.clone(), fresh = cache.clone();
  const std::vector<float> want = fed(host, there, tokens), whole = fed(model, fresh, tokens);
  const std::vector<float> got = fed(model, cache, tokens);
  ASSERT_EQ(got, whole) << "position " << there.length;
  ASSERT_LT(testing::relative_error(got, want), 1e-4) << "position " << there.length;
}

}  // namespace kvarena::device
