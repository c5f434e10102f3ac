#include "harness/device/ranks/device_parts.h"

namespace kvarena::device {
namespace {

void add(std::vector<DevicePart>& parts, DeviceHeadAttention& attention) {
  parts.insert(parts.end(), {DevicePart(&attention.qkv), DevicePart(&attention.output)});
}

void add(std::vector<DevicePart>& parts, DeviceLatentAttention& attention) {
  if (attention.q_down) parts.emplace_back(&*attention.q_down);
  parts.insert(parts.end(), {DevicePart(&attention.q), DevicePart(&attention.latent), DevicePart(&attention.output)});
}

void add(std::vector<DevicePart>& parts, DeviceDense& mlp) { parts.emplace_back(&mlp); }

void add(std::vector<DevicePart>& parts, DeviceSparse& mlp) {
  for (DeviceDense& expert : mlp.experts) parts.emplace_back(&expert);
  if (mlp.shared) parts.emplace_back(&*mlp.shared);
}

}  // namespace

std::vector<DevicePart> parts_of(DeviceWeights& weights) {
  std::vector<DevicePart> parts;
  if (weights.lm_head) parts.emplace_back(&*weights.lm_head);
  for (DeviceLayerWeights& layer : weights.layers) {
    std::visit([&](auto& attention) { add(parts, attention); }, layer.attention);
    std::visit([&](auto& mlp) { add(parts, mlp); }, layer.mlp);
  }
  return parts;
}

}  // namespace kvarena::device
