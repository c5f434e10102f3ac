#pragma once
// Which device computes which layers of a model.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "harness/model/checkpoint.h"
#include "harness/model/transformer.h"

namespace kvarena::device {

/// Tokens that a model's caches need room for at least, so that it does not get another device, and beside the model
/// that it helps; 32k tokens of Llama-3.1-8B are 4.3 GB.
inline constexpr int64_t kTokensOnFewest = 32768;

/// Bytes that caches may take of what is free beside the weights: passes need memory too.
[[nodiscard]] int64_t room_for_caches(int64_t free_bytes);

/// Bytes that a model takes on devices.
struct ModelBytes {
  struct Layer {
    int64_t weights = 0;
    int64_t entry = 0;  // of one token in the cache
  };
  std::vector<Layer> layers;
  int64_t embedding = 0;  // on the first layer's device
  int64_t head = 0;       // on the last layer's
  bool tied = false;      // one device holds both once
};
[[nodiscard]] ModelBytes bytes_of(const ModelConfig& config, const Checkpoint& checkpoint,
                                  const TransformerOptions& options);

struct FreeDevice {
  int64_t device = 0;  // its number
  int64_t bytes = 0;   // that are free there
};

/// Layers on devices.
struct LayerPlacement {
  std::vector<int64_t> devices;  // [layers], each one's device: those of the first device, then those of the next ...
  int64_t tokens = 0;            // whose entries there is room for beside the weights
};

/// Layers one behind the other on the devices in their order, so that the cache can have as many tokens as possible:
/// a device with more free memory gets more layers. Nothing where the weights and the entries of one token have no
/// room.
[[nodiscard]] std::optional<LayerPlacement> divide_layers(const ModelBytes& model, std::span<const FreeDevice> devices);

/// The division over the first devices, as few as have room for `tokens`; over all where not even these have.
[[nodiscard]] std::optional<LayerPlacement> fewest_devices(const ModelBytes& model, std::span<const FreeDevice> devices,
                                                           int64_t tokens);

}  // namespace kvarena::device
