#include "harness/device/ranks/device_parts.h"

namespace kvarena::device {
namespace {

std::vector<DevicePart> parts_of(DeviceHeadAttention& attention) { return {&attention.qkv, &attention.output}; }

std::vector<DevicePart> parts_of(DeviceLatentAttention& attention) {
  std::vector<DevicePart> parts{&attention.latent};
  if (attention.q_down) parts.emplace_back(&*attention.q_down);
  parts.insert(parts.end(), {DevicePart(&attention.q), DevicePart(&attention.output)});
  return parts;
}

std::vector<DevicePart> parts_of(DeviceDense& mlp) { return {&mlp}; }

std::vector<DevicePart> parts_of(DeviceSparse& mlp) {
  std::vector<DevicePart> parts;
  for (DeviceDense& expert : mlp.experts) parts.emplace_back(&expert);
  if (mlp.shared) parts.emplace_back(&*mlp.shared);
  return parts;
}

}  // namespace

std::vector<DevicePart> attention_parts(DeviceLayerWeights& layer) {
  return std::visit([](auto& attention) { return parts_of(attention); }, layer.attention);
}

std::vector<DevicePart> parts_of(DeviceWeights& weights) {
  std::vector<DevicePart> parts;
  const auto add = [&](const std::vector<DevicePart>& some) { parts.insert(parts.end(), some.begin(), some.end()); };
  for (DeviceLayerWeights& layer : weights.layers) {
    add(attention_parts(layer));
    add(std::visit([](auto& mlp) { return parts_of(mlp); }, layer.mlp));
  }
  if (weights.lm_head) parts.emplace_back(&*weights.lm_head);
  return parts;
}

}  // namespace kvarena::device
