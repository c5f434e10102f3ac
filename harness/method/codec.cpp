#include "harness/method/codec.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {
namespace {

/// The packed part in front of the tail, or null before the first block is complete.
PackedSegment* packed_part(LayerCache& cache) {
  for (const auto& segment : cache.segments()) {
    if (auto* packed = dynamic_cast<PackedSegment*>(segment.get())) return packed;
  }
  return nullptr;
}

}  // namespace

void CodecMethod::compress(LayerContext& layer, const LayerObservations& /*seen*/) const {
  const std::string problem = codec_->check_shape(layer.cache.shape());
  if (!problem.empty()) throw UserError(problem);
  settle(layer);
}

void CodecMethod::settle(LayerContext& layer) const {
  LayerCache& cache = layer.cache;
  const int64_t heads = cache.shape().kv_heads;
  const int64_t block = codec_->key_block();
  PackedSegment* packed = packed_part(cache);

  if (const int64_t full = cache.tail().entries(0) / block * block; full > 0) {
    if (packed == nullptr) {
      cache.insert_before_tail(codec_->make_segment(cache.shape(), cache.ledger()));
      packed = packed_part(cache);
    }
    packed->take(cache.tail(), full);
    layer.activity.entries_packed += full * heads;
  }
  if (packed == nullptr) return;
  const int64_t in_16_bits = packed->unpacked_values() + cache.tail().entries(0);
  const int64_t due = std::min(packed->unpacked_values(), in_16_bits - codec_->value_residual());
  if (due > 0) packed->pack_values(due);
}

}  // namespace kvarena
