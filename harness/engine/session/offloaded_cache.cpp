#include "harness/engine/session/offloaded_cache.h"

#include <algorithm>
#include <array>

#include "harness/core/error.h"

namespace kvarena {

ParkedCache park(KvCache full, const storage::HierarchyPtr& tiers, Tier tier) {
  ParkedCache parked{.cache = std::move(full), .tier = tier, .stores = {}};
  parked.stores = std::move(OffloadedCache(parked.cache, tiers, tier).stores_);
  return parked;
}

OffloadedCache::OffloadedCache(KvCache& full, const storage::HierarchyPtr& tiers, Tier tier)
    : full_(&full), tier_(tier) {
  for (const LayerCache& layer : full.layers) {
    KVARENA_ASSERT(layer.segments().size() == 1, "entries that are not all in the tail");
    stores_.emplace_back(layer.shape(), full.ledger, tiers, tier);
  }
  Traffic of_the_prompt;  // before the first round
  leave(0, of_the_prompt);
}

void OffloadedCache::begin_reload() {
  KVARENA_ASSERT(reloads_.empty(), "a cache is reloaded once before it is offloaded again");
  for (const LayerCache& layer : full_->layers) arriving_.emplace_back(layer.shape(), full_->ledger);
  auto* const device = dynamic_cast<LayerReceiver*>(full_->mirror.get());
  received_ = device != nullptr && device->expect(*full_);
  for (size_t layer = 0; layer < stores_.size(); ++layer) {
    reserved_ += stores_[layer].device_bytes();
    storage::Further receive;
    if (received_)
      receive = [device, layer](const auto& heads) { return device->receive(static_cast<int64_t>(layer), heads); };
    reloads_.push_back(stores_[layer].load(arriving_[layer].tail(), std::move(receive)));
  }
}

int64_t OffloadedCache::device_bytes() const { return std::max(reserved_, full_->ledger->current(Tier::device)); }

void OffloadedCache::wait_for(int64_t layer) {
  if (layer < 0 || layer >= static_cast<int64_t>(reloads_.size())) return;
  reloads_[layer].wait();
  if (full_->layers[layer].entries(0) == 0) std::swap(full_->layers[layer], arriving_[layer]);
}

void OffloadedCache::offload(int64_t before, Traffic& traffic) {
  for (const storage::Transfer& reload : reloads_) {
    KVARENA_ASSERT(reload.done(), "a pass over the cache waited for all layers");
    traffic += reload.as_load();
  }
  reloads_.clear();
  arriving_.clear();
  received_ = false;
  reserved_ = 0;
  unwritten_ = std::min(unwritten_, before);
  if (!kept_) leave(unwritten_, traffic);
}

void OffloadedCache::release(Traffic& traffic) {
  kept_ = false;
  if (stays()) leave(unwritten_, traffic);
}

void OffloadedCache::leave(int64_t before, Traffic& traffic) {
  std::vector<storage::Transfer> writes;
  for (size_t layer = 0; layer < stores_.size(); ++layer) {
    writes.push_back(stores_[layer].write(full_->layers[layer].tail(), before));
  }
  if (auto* const device = dynamic_cast<LayerReceiver*>(full_->mirror.get()); device != nullptr) {
    device->release();
  } else {
    full_->mirror.reset();
  }
  for (size_t layer = 0; layer < stores_.size(); ++layer) {
    storage::Transfer& write = writes[layer];
    write.wait();
    traffic.offloaded_bytes += write.bytes();
    traffic.link_seconds += write.link_seconds();
    traffic.stalled_seconds += write.waited_seconds();
    full_->layers[layer] = LayerCache(full_->layers[layer].shape(), full_->ledger);
  }
  unwritten_ = kAll;
}

double reload_rate(Transformer& model, const storage::HierarchyPtr& tiers, Tier tier) {
  const storage::LinkSpec& link = tiers->load(tier).spec();
  if (link.emulated()) return link.bytes_per_s;
  constexpr int64_t kLayerBytes = 2 << 20;
  KvCache cache = model.make_cache();
  for (LayerCache& layer : cache.layers) {
    const LayerShape& shape = layer.shape();
    const std::vector<float> zeros(static_cast<size_t>(shape.kv_heads * shape.head_dim));
    cache.length = kLayerBytes / shape.entry_bytes();
    layer.append(zeros.data(), zeros.data(), cache.length, /*stride=*/0, /*position=*/0);
  }
  model.upload(cache, /*tokens=*/0);
  OffloadedCache offloaded(cache, tiers, tier);
  std::array<double, 5> rates{};
  for (double& rate : rates) {
    Traffic traffic;
    offloaded.begin_reload();
    for (int64_t layer = 0; layer < std::ssize(cache.layers); ++layer) offloaded.wait_for(layer);
    offloaded.offload(cache.length, traffic);
    rate = static_cast<double>(traffic.loaded_bytes) / traffic.link_seconds;
  }
  std::ranges::nth_element(rates, rates.begin() + rates.size() / 2);
  return rates[rates.size() / 2];
}

void ReloadHooks::complete(KvCache& cache) {
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) cache_->wait_for(static_cast<int64_t>(layer));
  ForwardingHooks::complete(cache);
}

void ReloadHooks::before_pass(KvCache& cache, std::span<const int32_t> tokens) {
  cache_->wait_for(0);
  ForwardingHooks::before_pass(cache, tokens);
}

void ReloadHooks::after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) {
  ForwardingHooks::after_layer(layer, rows, count, hidden_size);
  cache_->wait_for(layer + 1);
}

}  // namespace kvarena
