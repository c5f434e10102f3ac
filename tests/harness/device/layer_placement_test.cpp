#include "harness/device/layer_placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/core/random.h"

namespace kvarena::device {
namespace {

/// Tokens that a division has room for; -1 where the weights have none.
int64_t room(const ModelBytes& model, std::span<const FreeDevice> devices, const std::vector<int64_t>& of_layers) {
  int64_t least = int64_t{1} << 40;
  for (const FreeDevice& on : devices) {
    int64_t weights = 0, entry = 0;
    for (size_t layer = 0; layer < of_layers.size(); ++layer) {
      if (of_layers[layer] != on.device) continue;
      weights += model.layers[layer].weights;
      entry += model.layers[layer].entry;
    }
    const bool first = of_layers.front() == on.device, last = of_layers.back() == on.device;
    if (first) weights += model.embedding;
    if (last && !(first && model.tied)) weights += model.head;
    if (entry == 0) continue;
    if (weights > on.bytes) return -1;
    least = std::min(least, room_for_caches(on.bytes - weights) / entry);
  }
  return least;
}

/// The most tokens of all divisions into runs of layers in the order of devices.
int64_t most_room(const ModelBytes& model, std::span<const FreeDevice> devices, std::vector<int64_t> of_layers,
                  size_t next) {
  if (of_layers.size() == model.layers.size()) return room(model, devices, of_layers);
  int64_t most = -1;
  for (size_t i = next; i < devices.size(); ++i) {
    std::vector<int64_t> longer = of_layers;
    longer.push_back(devices[i].device);
    most = std::max(most, most_room(model, devices, longer, i));
  }
  return most;
}

TEST(LayerPlacement, HasAsMuchRoomAsTheBestOfAllDivisions) {
  const RandomStream draws(5, "models and devices");
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(draws.uniform(drawn++) * static_cast<double>(below));
  };
  int fitted = 0, refused = 0, divided = 0;
  for (int round = 0; round < 500; ++round) {
    ModelBytes model{.layers = {}, .embedding = draw(4000), .head = 0, .tied = round % 2 == 0};
    model.head = model.tied ? model.embedding : draw(4000);
    for (int64_t layer = 0, layers = 1 + draw(6); layer < layers; ++layer)
      model.layers.push_back({.weights = draw(3000), .entry = 1 + draw(20)});
    std::vector<FreeDevice> devices;
    for (int64_t i = 0, count = 1 + draw(3); i < count; ++i) devices.push_back({.device = 7 - i, .bytes = draw(16000)});
    const std::optional<LayerPlacement> found = divide_layers(model, devices);
    const int64_t most = most_room(model, devices, {}, 0);
    ASSERT_EQ(found ? found->tokens : 0, std::max<int64_t>(0, most)) << round;
    ++(found ? fitted : refused);
    if (!found) continue;
    ASSERT_EQ(room(model, devices, found->devices), most) << round;
    divided += found->devices.front() != found->devices.back() ? 1 : 0;
  }
  EXPECT_GT(fitted, 100);
  EXPECT_GT(refused, 100);
  EXPECT_GT(divided, 50);
}

TEST(LayerPlacement, TakesAnotherDeviceWhereThereIsNotEnoughRoomForTheCache) {
  const ModelBytes model{.layers = std::vector<ModelBytes::Layer>(4, {.weights = 1000, .entry = 10}),
                         .embedding = 500,
                         .head = 500,
                         .tied = false};
  const std::vector<FreeDevice> devices{{0, 7000}, {1, 7000}, {2, 7000}};
  const auto used = [&](int64_t tokens) { return fewest_devices(model, devices, tokens)->devices; };
  EXPECT_EQ(used(10), (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(used(60), (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(used(1000000), divide_layers(model, devices)->devices);
  EXPECT_FALSE(fewest_devices(model, std::vector<FreeDevice>{{0, 900}, {1, 900}}, 1).has_value());
}

}  // namespace
}  // namespace kvarena::device
