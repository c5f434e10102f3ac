#include "harness/engine/reuse/deviation.h"

#include <algorithm>
#include <cmath>

namespace kvarena {
namespace {

/// Inner products of one token's rows, summed over heads.
struct Products {
  double both = 0;
  double full = 0;
  double other = 0;

  void add(const float* a, const float* b, int64_t count) {
    for (int64_t c = 0; c < count; ++c) {
      both += double{a[c]} * b[c];
      full += double{a[c]} * a[c];
      other += double{b[c]} * b[c];
    }
  }
  [[nodiscard]] double distance() const {
    if (full == 0 || other == 0) return full == other ? 0 : 1;
    return std::max(0.0, 1 - both / std::sqrt(full * other));
  }
};

struct Rows {
  std::vector<float> keys;
  std::vector<float> values;
};

Rows read(const LayerCache& layer, int64_t head) {
  const auto floats = static_cast<size_t>(layer.entries(head) * layer.shape().head_dim);
  Rows rows{.keys = std::vector<float>(floats), .values = std::vector<float>(floats)};
  int64_t at = 0;
  for (const auto& segment : layer.segments()) {
    segment->read(head, rows.keys.data() + at, rows.values.data() + at);
    at += segment->entries(head) * layer.shape().head_dim;
  }
  return rows;
}

}  // namespace

std::vector<double> layer_deviations(const KvCache& full, const KvCache& other, int64_t tokens) {
  std::vector<double> distances;
  if (!other.layers.empty() && other.layers.front().entries(0) < tokens) return distances;
  for (size_t layer = 0; layer < full.layers.size(); ++layer) {
    const LayerShape& shape = full.layers[layer].shape();
    std::vector<Products> keys(static_cast<size_t>(tokens));
    std::vector<Products> values(static_cast<size_t>(tokens));
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const Rows a = read(full.layers[layer], head);
      const Rows b = read(other.layers[layer], head);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t at = t * shape.head_dim;
        keys[t].add(&a.keys[at], &b.keys[at], shape.head_dim);
        values[t].add(&a.values[at], &b.values[at], shape.head_dim);
      }
    }
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) sum += (keys[t].distance() + values[t].distance()) / 2;
    distances.push_back(tokens == 0 ? 0 : sum / static_cast<double>(tokens));
  }
  return distances;
}

}  // namespace kvarena
