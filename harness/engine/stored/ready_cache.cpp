#include "harness/engine/stored/ready_cache.h"

#include <algorithm>

#include "harness/cache/shared_front.h"
#include "harness/core/error.h"

namespace kvarena::stored {
namespace {

bool holds_every_token(const KvCache& cache) {
  return std::ranges::all_of(cache.layers, [&](const LayerCache& layer) {
    for (int64_t head = 0; head < layer.shape().kv_heads; ++head) {
      if (layer.entries(head) != cache.length) return false;
    }
    return layer.packed().empty();
  });
}

}  // namespace

ReadyCache::ReadyCache(const Transformer& model, const ModelFacts& facts, const Method* method,
                       std::span<const std::byte> bytes)
    : cache_(restore_cache(model, facts, method, bytes)), whole_(holds_every_token(cache_)) {
  if (!stores_stream(method)) return;
  share_front(cache_);
  stream_.assign(bytes.begin(), bytes.end());
}

std::vector<std::byte> ReadyCache::stored() const { return stream_.empty() ? store_again(cache_) : stream_; }

KvCache ReadyCache::begin(Transformer& model) const {
  const std::lock_guard lock(cloning_);
  try {
    if (whole_) model.upload(cache_, 0);
  } catch (const UserError&) {
    // The device has no room for it: what begins goes up by itself, or fails with its reason.
  }
  return cache_.clone();
}

}  // namespace kvarena::stored
