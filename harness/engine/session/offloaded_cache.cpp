#include "harness/engine/session/offloaded_cache.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {
namespace {

/// A cache of the same layers and length, without entries.
KvCache emptied(const KvCache& cache) {
  std::vector<LayerShape> shapes;
  for (const LayerCache& layer : cache.layers) shapes.push_back(layer.shape());
  KvCache empty(shapes);
  empty.length = cache.length;
  empty.prompt_length = cache.prompt_length;
  return empty;
}

}  // namespace

OffloadedCache::OffloadedCache(KvCache& full, storage::HierarchyPtr tiers, Tier tier)
    : full_(&full), offloaded_(full.clone()), tiers_(std::move(tiers)), tier_(tier) {
  (void)tiers_->storage(tier_);
  full = emptied(full);
}

/// Separate pieces of a layer: keys and values of each head.
int64_t OffloadedCache::pieces() const { return 2 * offloaded_.layers.front().shape().kv_heads; }

void OffloadedCache::begin_reload() {
  KVARENA_ASSERT(reloads_.empty(), "a cache is reloaded once before it is offloaded again");
  taken_ = offloaded_bytes();
  full_->ledger->add(Tier::device, taken_);
  arrived_.assign(offloaded_.layers.size(), false);
  for (const LayerCache& layer : offloaded_.layers) {
    reloads_.push_back(tiers_->load(tier_).carry(layer.bytes(), pieces(), [] {}));
  }
}

void OffloadedCache::wait_for(int64_t layer) {
  if (layer < 0 || layer >= static_cast<int64_t>(reloads_.size())) return;
  reloads_[layer].wait();
  if (arrived_[layer]) return;
  std::swap(full_->layers[layer], offloaded_.layers[layer]);
  arrived_[layer] = true;
}

void OffloadedCache::offload(int64_t before, Traffic& traffic) {
  KVARENA_ASSERT(std::ranges::count(arrived_, false) == 0, "a pass over the cache waited for all layers");
  for (const storage::Transfer& reload : reloads_) {
    traffic.loaded_bytes += reload.bytes();
    traffic.link_seconds += reload.link_seconds();
    traffic.stalled_seconds += reload.waited_seconds();
  }

  int64_t bytes = 0;
  for (const LayerCache& layer : full_->layers) bytes += (full_->length - before) * layer.shape().entry_bytes();
  const auto layers = static_cast<int64_t>(full_->layers.size());
  storage::Transfer offload = tiers_->offload(tier_).carry(bytes, layers * pieces(), [] {});
  offload.wait();
  traffic.offloaded_bytes += bytes;
  traffic.link_seconds += offload.link_seconds();
  traffic.stalled_seconds += offload.waited_seconds();
  offloaded_.length = full_->length;
  offloaded_.layers.swap(full_->layers);
  reloads_.clear();
  full_->ledger->add(Tier::device, -taken_);
  taken_ = 0;
}

void ReloadHooks::complete(KvCache& cache) {
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) cache_->wait_for(static_cast<int64_t>(layer));
  ForwardingHooks::complete(cache);
}

void ReloadHooks::before_pass(KvCache& cache, std::span<const int32_t> tokens) {
  cache_->wait_for(0);
  ForwardingHooks::before_pass(cache, tokens);
}

void ReloadHooks::before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) {
  ForwardingHooks::before_attention(layer, cache, queries);
  cache_->wait_for(layer + 1);
}

}  // namespace kvarena
