#include "harness/engine/reuse/narrowing.h"

#include <algorithm>

namespace kvarena {
namespace {

double squared_distance(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t c = 0; c < count; ++c) sum += (double{a[c]} - b[c]) * (double{a[c]} - b[c]);
  return sum;
}

}  // namespace

bool Narrowing::wanted(const Reuser& reuser, int64_t layers) {
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (reuser.narrows(layer)) return true;
  }
  return false;
}

void Narrowing::see(int64_t /*layer*/, std::span<const int32_t> positions, const float* keys, const float* values,
                    int64_t stride, const LayerCache& cache) {
  const LayerShape& shape = cache.shape();
  if (key_distances_.empty()) {  // the layer's first rows: nothing was replaced yet
    const auto floats = static_cast<size_t>(cache.entries(0) * shape.head_dim);
    stored_.keys.assign(static_cast<size_t>(shape.kv_heads), std::vector<float>(floats));
    stored_.values = stored_.keys;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      cache.tail().read(head, stored_.keys[head].data(), stored_.values[head].data());
    }
  }
  for (size_t i = 0; i < positions.size() && positions[i] < question_; ++i) {
    double key = 0;
    double value = 0;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t at = static_cast<int64_t>(i) * stride + head * shape.head_dim;
      const int64_t entry = positions[i] * shape.head_dim;
      key += squared_distance(keys + at, &stored_.keys[head][entry], shape.head_dim);
      value += squared_distance(values + at, &stored_.values[head][entry], shape.head_dim);
    }
    key_distances_.push_back(static_cast<float>(key));
    value_distances_.push_back(static_cast<float>(value));
  }
}

std::vector<int32_t> Narrowing::keep(int64_t layer, std::span<const int32_t> positions) {
  const auto context = std::ranges::lower_bound(positions, question_) - positions.begin();
  std::vector<int32_t> kept = reuser_->narrow({.layer = layer,
                                               .context = question_,
                                               .positions = positions.first(static_cast<size_t>(context)),
                                               .keys = key_distances_,
                                               .values = value_distances_});
  kept.insert(kept.end(), positions.begin() + context, positions.end());
  stored_ = {};
  key_distances_.clear();
  value_distances_.clear();
  return kept;
}

}  // namespace kvarena
