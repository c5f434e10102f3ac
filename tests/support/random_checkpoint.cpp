#include "tests/support/random_checkpoint.h"

#include <algorithm>
#include <cmath>

#include "harness/core/random.h"

namespace kvarena::testing {

RandomCheckpoint::RandomCheckpoint(const TensorShapes& shapes, uint64_t seed) : seed_(seed) {
  for (const auto& [name, shape] : shapes) {
    tensors_.push_back({.name = name, .shape = shape, .type = TensorType::f32, .stored_type = "F32"});
    if (!name.ends_with("_blocks") && !name.ends_with("_scales")) continue;
    tensors_.back().type = TensorType::other;
    tensors_.back().stored_type = "U8";
    bytes_[name] = random_bytes(tensors_.back());
  }
  std::ranges::sort(tensors_, {}, &TensorInfo::name);
}

std::span<const std::byte> RandomCheckpoint::raw(std::string_view name) const {
  const auto held = bytes_.find(std::string(name));
  if (held == bytes_.end()) return {};
  return held->second;
}

std::vector<std::byte> RandomCheckpoint::random_bytes(const TensorInfo& info) const {
  const RandomStream stream(seed_, info.name);
  const bool scales = info.name.ends_with("_scales");
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < info.elements(); ++i) {
    const double u = stream.uniform(static_cast<uint64_t>(i));
    bytes.push_back(static_cast<std::byte>(scales ? 122 + static_cast<int>(4 * u) : static_cast<int>(256 * u)));
  }
  return bytes;
}

void RandomCheckpoint::convert_rows(size_t index, int64_t first, int64_t count, float* out) const {
  const TensorInfo& info = tensors_[index];
  const RandomStream stream(seed_, info.name);
  const int64_t columns = info.columns();
  largest_read = std::max(largest_read, count * columns);
  const auto contains = [&](const char* part) { return info.name.find(part) != std::string::npos; };
  const bool sharp = contains("q_proj") || contains("k_proj") || contains("q_b_proj") || contains("qkv_proj");
  double low = 0.8;
  double width = 0.4;
  if (info.name.ends_with("bias")) {
    low = -0.4;
    width = 0.8;
  } else if (contains("A_log")) {
    low = -5;
    width = 4;
  } else if (info.shape.size() > 1) {
    width = 2 * (sharp ? 6.0 : 2.0) / std::sqrt(static_cast<double>(info.shape[1]));
    low = -width / 2;
  }
  for (int64_t i = 0; i < count * columns; ++i) {
    out[i] = static_cast<float>(low + width * stream.uniform(static_cast<uint64_t>(first * columns + i)));
  }
}

}  // namespace kvarena::testing
