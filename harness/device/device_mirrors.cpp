#include "harness/device/device_mirrors.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvarena::device {
namespace {

std::vector<uint64_t> versions_of(const LayerCache& layer) {
  std::vector<uint64_t> versions;
  for (const auto& segment : layer.segments()) versions.push_back(segment->version());
  return versions;
}

/// Entries that the copy may hold in vain beside as many as are left, before it is made anew.
constexpr int64_t kMaxDeadEntries = 1024;

/// Where the ascending `wanted` stand in the ascending `all`; fewer where some do not.
std::vector<int32_t> places_of(const std::vector<int32_t>& wanted, const std::vector<int32_t>& all) {
  std::vector<int32_t> places;
  auto at = all.begin();
  for (const int32_t position : wanted) {
    at = std::lower_bound(at, all.end(), position);
    if (at == all.end() || *at != position) break;
    places.push_back(static_cast<int32_t>(at - all.begin()));
  }
  return places;
}

/// Rewritten entries of a tail's head, by places in a run that holds entries of the positions `here`.
RewrittenEntries rewritten(const EntrySegment& tail, const std::vector<int32_t>& here, int64_t head) {
  RewrittenEntries changed{.kv_head = head};
  std::vector<int32_t> wanted = tail.changes().rewritten()[head];
  std::ranges::sort(wanted);
  wanted.erase(std::ranges::unique(wanted).begin(), wanted.end());
  const std::vector<int32_t> there = tail.positions(head);
  std::vector<int64_t> entries;
  for (const int32_t position : wanted) {
    const auto from = std::ranges::lower_bound(there, position), to = std::ranges::lower_bound(here, position);
    if (from == there.end() || *from != position || to == here.end() || *to != position) continue;
    entries.push_back(from - there.begin());
    changed.places.push_back(static_cast<int32_t>(to - here.begin()));
  }
  const int64_t d = tail.shape().head_dim;
  changed.rows.resize(2 * entries.size() * static_cast<size_t>(d));
  float* key = changed.rows.data();
  float* value = key + std::ssize(entries) * d;
  for (const int64_t entry : entries) {
    tail.read_some(head, entry, 1, key, value, d);
    key += d;
    value += d;
  }
  return changed;
}

std::vector<int32_t> count_from(int64_t first, int64_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), static_cast<int32_t>(first));
  return numbers;
}

}  // namespace

DeviceMirror::DeviceMirror(std::shared_ptr<DeviceMirrors> all) : all_(std::move(all)) {
  const std::scoped_lock lock(all_->mutex_);
  all_->used_.push_back(this);
}

DeviceMirror::~DeviceMirror() {
  std::unique_lock lock(all_->mutex_);
  all_->used_.remove(this);
  all_->free(drop(), lock);
}

bool DeviceMirror::holds(const Origin& origin) const {
  return this == origin.mirror && cache_ && cache_->id() == origin.id && cache_->changes() == origin.changes;
}

/// Only of full caches, as prompts leave them.
std::unique_ptr<CacheMirror> DeviceMirror::for_clone(const KvCache& from, KvCache& clone) {
  auto mirror = std::make_unique<DeviceMirror>(all_);
  const std::scoped_lock lock(all_->mutex_);
  const std::vector<bool> same = alike(from);
  if (std::ranges::count(same, true) < std::ssize(from.layers) || !cache_->full()) return mirror;
  mirror->origin_ = {.mirror = this, .id = cache_->id(), .changes = cache_->changes(), .length = from.length};
  for (LayerCache& layer : clone.layers) {
    EntrySegment& tail = layer.tail();
    mirror->layers_.push_back({.versions = versions_of(layer),
                               .newest = tail.entries(0),
                               .tokens = from.length,
                               .drops = tail.changes().drops(),
                               .positions = {}});
    tail.changes().mark(tail.version(), tail.shape().kv_heads, tail.entries(0));
  }
  return mirror;
}

void DeviceMirror::count(const KvCache& host, int64_t coming) {
  if (ledger_ != host.ledger) count(0);
  ledger_ = host.ledger;
  count(cache_ ? std::max<int64_t>(0, cache_->bytes() - host.bytes() - coming) : 0);
}

void DeviceMirror::count(int64_t bytes) {
  if (ledger_) ledger_->add_own(Tier::device, bytes - counted_);
  counted_ = bytes;
}

std::shared_ptr<DeviceCache> DeviceMirror::drop() {
  taken_.clear();
  count(0);
  return std::exchange(cache_, nullptr);
}

const DeviceBytes& DeviceMirror::taken() {
  if (idle()) taken_ = cache_->bytes_by_device();  // a pass may have given it slots
  return taken_;
}

bool DeviceMirror::follow(const KvCache& host, int64_t visited) {
  if (!cache_ || layers_.size() != host.layers.size()) return false;
  int64_t taken_back = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (versions_of(host.layers[i]) != layers_[i].versions && !follow_emptied(host.layers[i], i)) return false;
    taken_back = std::max(taken_back, layers_[i].newest - host.layers[i].tail().changes().intact());
  }
  const int64_t length = cache_->length() - taken_back, more = host.length - length;
  if (more < 0 || !cache_->may_truncate(length)) return false;
  cache_->truncate(length);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].newest = std::min(layers_[i].newest, host.layers[i].tail().changes().intact());
    layers_[i].tokens = std::min(layers_[i].tokens, length);
    for (size_t head = 0; head < layers_[i].positions.size(); ++head) {
      const int64_t entries = cache_->entries(static_cast<int64_t>(i), static_cast<int64_t>(head));
      std::vector<int32_t>& positions = layers_[i].positions[head];
      positions.resize(std::min(positions.size(), static_cast<size_t>(entries)));
    }
  }
  if (more > 0 && cache_->any_dropped()) return false;
  // Entries that came elsewhere came to all layers.
  for (size_t i = 0; i < (more > 0 ? layers_.size() : static_cast<size_t>(visited)); ++i) {
    if (layers_[i].tokens != length || !follow_drops(host.layers[i], i)) return false;
    const std::vector<int64_t> entries = DeviceCache::entries_in_runs(host.layers[i]);
    for (int64_t head = 0; head < std::ssize(entries); ++head) {
      if (cache_->held(static_cast<int64_t>(i), head) + more != entries[static_cast<size_t>(head)]) return false;
    }
  }
  cache_->follow_packed(host);
  return true;
}

bool DeviceMirror::follow_emptied(const LayerCache& host, size_t layer) {
  const auto number = static_cast<int64_t>(layer);
  for (int64_t head = 0; head < host.shape().kv_heads; ++head) {
    const bool any = host.segments().size() > 1 || host.tail().entries(head) > 0;
    if (any || !cache_->fronts(number).empty() || cache_->entries(number, head) > kMaxDeadEntries) return false;
  }
  std::vector<std::vector<int32_t>> none(static_cast<size_t>(host.shape().kv_heads));
  for (int64_t head = std::ssize(layers_[layer].positions); head < host.shape().kv_heads; ++head)
    layers_[layer].positions.push_back(positions_of(layer, head));
  cache_->keep(number, std::move(none));
  layers_[layer].versions = versions_of(host);
  layers_[layer].newest = 0;
  layers_[layer].drops = host.tail().changes().drops();
  return true;
}

bool DeviceMirror::follow_drops(const LayerCache& host, size_t layer) {
  Layer& copy = layers_[layer];
  const EntrySegment& tail = host.tail();
  if (copy.drops == tail.changes().drops()) return true;
  if (host.segments().size() != 1) return false;
  std::vector<std::vector<int32_t>> kept;
  for (int64_t head = 0; head < host.shape().kv_heads; ++head) {
    const int64_t entries = cache_->entries(static_cast<int64_t>(layer), head), left = tail.entries(head);
    if (copy.positions.size() == static_cast<size_t>(head))  // it was dense
      copy.positions.push_back(positions_of(layer, head));
    if (entries > 2 * left + kMaxDeadEntries) return false;
    kept.push_back(places_of(tail.positions(head), copy.positions[static_cast<size_t>(head)]));
    if (std::ssize(kept.back()) != left) return false;
  }
  cache_->keep(static_cast<int64_t>(layer), std::move(kept));
  copy.drops = tail.changes().drops();
  return true;
}

std::vector<int32_t> DeviceMirror::positions_of(size_t layer, int64_t kv_head) const {
  const auto& known = layers_[layer].positions;
  if (std::cmp_less(kv_head, known.size())) return known[static_cast<size_t>(kv_head)];
  const int64_t entries = cache_->entries(static_cast<int64_t>(layer), kv_head);
  return count_from(cache_->length() - entries, entries);
}

std::vector<bool> DeviceMirror::alike(const KvCache& host) const {
  if (!cache_ || layers_.size() != host.layers.size() || cache_->length() != host.length) return {};
  std::vector<bool> alike;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerCache& layer = host.layers[i];
    alike.push_back(cache_->kept(static_cast<int64_t>(i)).empty() && layers_[i].tokens == host.length &&
                    layers_[i].versions == versions_of(layer) &&
                    layer.tail().changes().none(layer.tail().version(), layer.tail().entries(0)));
  }
  return alike;
}

void DeviceMirror::take_rewritten(const KvCache& host, int64_t layers) {
  std::vector<RewrittenEntries> heads;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const EntrySegment& tail = host.layers[layer].tail();
    for (int64_t head = 0; head < std::ssize(tail.changes().rewritten()); ++head) {
      if (tail.changes().rewritten()[head].empty()) continue;
      heads.push_back(rewritten(tail, positions_of(static_cast<size_t>(layer), head), head));
      heads.back().layer = layer;
    }
  }
  cache_->rewrite(heads);
}

void DeviceMirror::take_new(KvCache& host, int64_t visited) {
  const bool grew = cache_->length() < host.length;
  take_rewritten(host, grew ? std::ssize(host.layers) : visited);
  if (!grew) return;
  cache_->take_newest(host);
  record(host);
}

void DeviceMirror::record(KvCache& host) {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerCache& own = host.layers[layer];
    layers_[layer] = {.tokens = cache_->length(), .drops = own.tail().changes().drops()};
    const bool ragged = own.segments().size() == 1 && own.tail().ragged();
    for (int64_t head = 0; ragged && head < own.shape().kv_heads; ++head)
      layers_[layer].positions.push_back(own.tail().positions(head));
    record(host, layer);
  }
}

void DeviceMirror::record(KvCache& host, size_t layer) {
  EntrySegment& tail = host.layers[layer].tail();
  Layer& copy = layers_[layer];
  copy.versions = versions_of(host.layers[layer]);
  copy.newest = tail.entries(0);
  for (std::vector<int32_t>& head : copy.positions) {
    for (int64_t token = copy.tokens; token < cache_->length(); ++token) head.push_back(static_cast<int32_t>(token));
  }
  copy.tokens = cache_->length();
  tail.changes().mark(tail.version(), tail.shape().kv_heads, tail.entries(0));
}

void DeviceMirrors::appending(KvCache& host, int64_t bytes) {
  static_cast<DeviceMirror&>(*host.mirror).count(host, bytes);
}

void DeviceMirrors::appended(KvCache& host, int64_t layer) {
  auto& mirror = static_cast<DeviceMirror&>(*host.mirror);
  mirror.record(host, static_cast<size_t>(layer));
  if (layer + 1 == std::ssize(host.layers)) mirror.expects_ = false;  // all have come
}

}  // namespace kvarena::device
