#pragma once
// A layer under a quantiser that restores entries from more than codes, as a prefill and decoding fill it.

#include <cmath>
#include <utility>

#include "tests/methods/compression/packed_layer.h"

namespace kvarena::testing {

inline constexpr int64_t kRestoredDim = 64;

/// Observations of a prefill: attention that grows with the entry's number modulo 10.
inline LayerObservations observations(int64_t n) {
  LayerObservations seen;
  seen.entries = n;
  for (int64_t h = 0; h < 6; ++h) {
    for (int64_t i = 0; i < n; ++i) seen.prompt_attention.push_back(static_cast<float>((i % 10) * (n - i)));
  }
  seen.hidden = random_floats(n * 8, "hidden");
  return seen;
}

inline PackedLayer filled(const nlohmann::json& spec, int64_t n, int64_t steps = 0) {
  PackedLayer layer(spec, kCodecShape, &turning_model());
  layer.append(n);
  layer.compress(observations(n));
  layer.decode(steps);
  return layer;
}

/// Mean squared error of keys and of values over all entries, with respect to what was appended (n = prompt only).
inline std::pair<double, double> errors(const nlohmann::json& spec, const std::vector<float>& rows, int64_t n) {
  PackedLayer layer(spec, kCodecShape, &turning_model());
  layer.append(rows, rows, n);
  layer.compress(observations(n));
  double k_error = 0;
  double v_error = 0;
  for (const auto& segment : layer.cache.layers[0].segments()) {
    for (int64_t head = 0; head < 2; ++head) {
      const auto positions = segment->positions(head);
      std::vector<float> k(positions.size() * kRestoredDim);
      std::vector<float> v(k.size());
      segment->read(head, k.data(), v.data());
      for (size_t i = 0; i < k.size(); ++i) {
        const double want =
            rows[positions[i / kRestoredDim] * 128 + head * kRestoredDim + static_cast<int64_t>(i % kRestoredDim)];
        k_error += (k[i] - want) * (k[i] - want);
        v_error += (v[i] - want) * (v[i] - want);
      }
    }
  }
  return {k_error / static_cast<double>(n * 128), v_error / static_cast<double>(n * 128)};
}

}  // namespace kvarena::testing
