#pragma once
// Packing a cache as a codec does while it decodes.

#include <algorithm>
#include <memory>

#include "harness/cache/layer_cache.h"
#include "harness/cache/quantized_segment.h"

namespace kvarena::testing {

/// Packs all but fewer than 16 of the newest keys of every layer, and all but the 20 newest values, or under a
/// transform as many as keys. Whether keys were packed.
inline bool pack(KvCache& cache, const QuantizedFormat& format) {
  constexpr int64_t kBlock = 16, kResidual = 20;
  bool keys = false;
  for (LayerCache& layer : cache.layers) {
    if (layer.segments().size() == 1)
      layer.insert_packed(std::make_unique<QuantizedSegment>(layer.shape(), format, layer.ledger()));
    auto& packed = dynamic_cast<QuantizedSegment&>(*layer.segments().front());
    const int64_t due = layer.tail().entries(0) / kBlock * kBlock;
    if (due > 0) packed.take(layer.tail(), due);
    keys = due > 0;
    const int64_t exact = packed.unpacked_values() + layer.tail().entries(0);
    const int64_t stay = format.value_transform ? layer.tail().entries(0) : kResidual;
    packed.pack_values(std::clamp<int64_t>(exact - stay, 0, packed.unpacked_values()));
  }
  return keys;
}

}  // namespace kvarena::testing
