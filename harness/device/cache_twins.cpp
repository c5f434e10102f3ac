#include "harness/device/cache_twins.h"

#include <algorithm>

namespace kvarena::device {
namespace {

/// Tokens that a new copy has room for beyond those that are known to come, so that answers seldom move it.
constexpr int64_t kAnswer = 256;

/// Of all layers' entries of `tokens` tokens.
int64_t bytes_of(const KvCache& host, int64_t tokens) {
  int64_t bytes = 0;
  for (const LayerCache& layer : host.layers) bytes += layer.shape().entry_bytes() * tokens;
  return bytes;
}

}  // namespace

DeviceTwin::DeviceTwin(std::shared_ptr<CacheTwins> all) : all_(std::move(all)) {
  const std::scoped_lock lock(all_->mutex_);
  all_->used_.push_back(this);
}

DeviceTwin::~DeviceTwin() {
  const std::scoped_lock lock(all_->mutex_);
  all_->used_.remove(this);
}

bool DeviceTwin::follow(const KvCache& host) {
  if (!cache_ || layers_.size() != host.layers.size()) return false;
  int64_t taken_back = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    std::vector<uint64_t> versions;
    for (const auto& segment : host.layers[i].segments()) {
      versions.push_back(static_cast<const EntrySegment&>(*segment).version());  // takes() has seen to it
    }
    if (versions != layers_[i].versions) return false;
    taken_back = std::max(taken_back, layers_[i].newest - host.layers[i].tail().intact());
  }
  const int64_t length = cache_->length() - taken_back;
  if (length != host.length || !cache_->may_truncate(length)) return false;
  cache_->truncate(length);
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (int64_t head = 0; head < host.layers[i].shape().kv_heads; ++head) {
      if (cache_->entries(static_cast<int64_t>(i), head) != host.layers[i].entries(head)) return false;
    }
  }
  return true;
}

void DeviceTwin::remember(KvCache& host) {
  layers_.assign(host.layers.size(), {});
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (const auto& segment : host.layers[i].segments()) {
      layers_[i].versions.push_back(static_cast<const EntrySegment&>(*segment).version());
    }
    layers_[i].newest = host.layers[i].tail().entries(0);
    host.layers[i].tail().mark();
  }
}

DeviceTwin& CacheTwins::twin_of(KvCache& host) {
  auto* twin = dynamic_cast<DeviceTwin*>(host.twin.get());
  if (twin == nullptr || twin->all_.get() != this) {
    host.twin = std::make_unique<DeviceTwin>(shared_from_this());
    twin = static_cast<DeviceTwin*>(host.twin.get());
  }
  const std::scoped_lock lock(mutex_);
  used_.splice(used_.end(), used_, std::ranges::find(used_, twin));
  return *twin;
}

int64_t CacheTwins::held() const {
  int64_t bytes = 0;
  for (const DeviceTwin* twin : used_) bytes += twin->cache_ ? twin->cache_->bytes() : 0;
  return bytes;
}

/// Where even that is not enough, the device itself refuses.
void CacheTwins::make_room(int64_t bytes, std::span<DeviceTwin* const> needed) {
  const std::scoped_lock lock(mutex_);
  for (DeviceTwin* twin : used_) {
    if (held() + bytes <= most_) return;
    if (!twin->cache_ || std::ranges::find(needed, twin) != needed.end()) continue;
    twin->cache_.reset();
    ++evictions_;
  }
}

std::vector<DeviceCache*> CacheTwins::of(DeviceModel& model, std::span<KvCache* const> hosts,
                                         std::span<const int64_t> tokens) {
  std::vector<DeviceTwin*> twins;
  for (KvCache* host : hosts) twins.push_back(&twin_of(*host));
  std::vector<DeviceCache*> caches;
  for (size_t i = 0; i < hosts.size(); ++i) {
    KvCache& host = *hosts[i];
    const int64_t needed = host.length + tokens[i];
    if (!twins[i]->follow(host)) {
      twins[i]->cache_.reset();
      const int64_t expected = std::max(needed, host.prompt_length) + kAnswer;
      make_room(bytes_of(host, expected), twins);
      twins[i]->cache_.emplace(model.to_device(host, expected - host.length));
      twins[i]->remember(host);
      uploads_ += host.length > 0 ? 1 : 0;
    } else if (needed > twins[i]->cache_->capacity()) {
      make_room(bytes_of(host, needed), twins);  // it moves: old and new at once
    }
    caches.push_back(&*twins[i]->cache_);
  }
  return caches;
}

void CacheTwins::appended(KvCache& host) { static_cast<DeviceTwin&>(*host.twin).remember(host); }

}  // namespace kvarena::device
