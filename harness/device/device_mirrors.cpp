#include "harness/device/device_mirrors.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "harness/cache/attend_plan.h"
#include "harness/device/device_errors.h"

namespace kvarena::device {
namespace {

std::vector<uint64_t> versions_of(const LayerCache& layer) {
  std::vector<uint64_t> versions;
  for (const auto& segment : layer.segments()) versions.push_back(segment->version());
  return versions;
}

/// Whether some run of a new copy has to be filled from the host.
bool any_goes_up(const KvCache& host, const std::vector<bool>& alike) {
  if (alike.empty()) return host.length > 0;
  for (size_t layer = 0; layer < host.layers.size(); ++layer) {
    if (!alike[layer] && DeviceCache::entries_in_runs(host.layers[layer]).front() > 0) return true;
  }
  return false;
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

/// A part of the copy for the segment that it is a copy of.
class DeviceMirror::SegmentCopy final : public EntryMirror {
 public:
  /// The copy of the tail.
  SegmentCopy(DeviceMirror& mirror, int64_t layer, const EntrySegment& tail) : SegmentCopy(mirror, layer) {
    tail_ = &tail;
  }
  /// The copy `front` of a segment that is attended as it is stored.
  SegmentCopy(DeviceMirror& mirror, int64_t layer, const DeviceSegment& front) : SegmentCopy(mirror, layer) {
    front_ = &front;
  }

  [[nodiscard]] bool add_probabilities(const AttentionItem& item, const LayerQueries& queries, const float* lse,
                                       float* sums, int64_t row_stride) override {
    const bool causal = item.sees.rule == Visibility::Rule::newest, listed = !item.lists.empty();
    if (listed && (front_ == nullptr || std::ssize(item.lists) != cache_->shape(layer_).kv_heads)) return false;
    if (front_ != nullptr ? item.runs.front().entries != front_->entries()
                          : !tail_->changes().none(tail_->version(), tail_->entries(0)))
      return false;
    if (causal && !holds_newest(queries.q_len)) return false;
    AttentionSums::Entries entries{.shape = cache_->shape(layer_),
                                   .runs = front_ != nullptr ? front_->runs() : cache_->runs(layer_),
                                   .lists = item.lists};
    if (front_ == nullptr) {
      for (const std::vector<int32_t>& kept : cache_->kept(layer_)) entries.lists.emplace_back(kept);
    }
    const std::scoped_lock lock(all_->mutex_);
    const kernels::CudaDeviceScope here(cache_->shape(layer_).device);
    AttentionSums& own = all_->sums_[cache_->shape(layer_).device];
    on_device([&] { own.add(std::move(entries), queries, causal, lse, sums, row_stride); }, [] {});
    ++all_->lookups_;
    return true;
  }

 private:
  /// Whether the last `count` entries of a list are the last of its run, where what a query sees is counted.
  [[nodiscard]] bool holds_newest(int64_t count) const {
    for (int64_t head = 0; head < std::ssize(cache_->kept(layer_)); ++head) {
      const std::vector<int32_t>& kept = cache_->kept(layer_)[static_cast<size_t>(head)];
      if (std::ssize(kept) < count) return false;
      if (kept[kept.size() - static_cast<size_t>(count)] != cache_->entries(layer_, head) - count) return false;
    }
    return true;
  }

  SegmentCopy(DeviceMirror& mirror, int64_t layer) : cache_(&*mirror.cache_), all_(mirror.all_.get()), layer_(layer) {}

  const DeviceCache* cache_;
  DeviceMirrors* all_;
  int64_t layer_;
  const EntrySegment* tail_ = nullptr;
  const DeviceSegment* front_ = nullptr;
};

DeviceMirror::DeviceMirror(std::shared_ptr<DeviceMirrors> all) : all_(std::move(all)) {
  const std::scoped_lock lock(all_->mutex_);
  all_->used_.push_back(this);
}

DeviceMirror::~DeviceMirror() {
  count(0);
  const std::scoped_lock lock(all_->mutex_);
  all_->used_.remove(this);
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

std::unique_ptr<MirrorScope> DeviceMirror::scores_scope(KvCache& own) {
  /// Scopes of all layers.
  struct Lookups final : MirrorScope {
    std::vector<std::unique_ptr<DeviceMirrors::LayerScope>> layers;
  };
  const int64_t layers = std::ssize(own.layers);
  if (!DeviceCache::cannot_hold(all_->shapes_, own, layers).empty()) return nullptr;
  const GrowingCache grown[] = {{.host = &own}};
  (void)on_device([&] { return all_->of(grown, layers); }, [&] { drop(); });
  auto made = std::make_unique<Lookups>();
  for (int64_t layer = 0; layer < layers; ++layer)
    made->layers.push_back(std::make_unique<DeviceMirrors::LayerScope>(own, layer));
  return made;
}

void DeviceMirror::count(const KvCache& host) {
  if (ledger_ != host.ledger) count(0);
  ledger_ = host.ledger;
  count(cache_ ? std::max<int64_t>(0, cache_->bytes() - host.bytes()) : 0);
}

void DeviceMirror::count(int64_t bytes) {
  if (ledger_) ledger_->add_own(Tier::device, bytes - counted_);
  counted_ = bytes;
}

void DeviceMirror::drop() {
  cache_.reset();
  count(0);
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

DeviceMirrors::DeviceMirrors(std::vector<PlacedLayer> layers, DeviceBytes limits)
    : shapes_(std::move(layers)), limits_(std::move(limits)) {
  for (const auto& [device, bytes] : limits_) {
    const kernels::CudaDeviceScope there(device);
    bus_.try_emplace(device);
  }
}

DeviceMirror& DeviceMirrors::mirror_of(KvCache& host) {
  auto* mirror = dynamic_cast<DeviceMirror*>(host.mirror.get());
  if (mirror == nullptr || mirror->all_.get() != this) {
    host.mirror = std::make_unique<DeviceMirror>(shared_from_this());
    mirror = static_cast<DeviceMirror*>(host.mirror.get());
  }
  const std::scoped_lock lock(mutex_);
  used_.splice(used_.end(), used_, std::ranges::find(used_, mirror));
  return *mirror;
}

bool DeviceMirrors::has_room(int64_t tokens) const {
  DeviceBytes taken;
  for (const PlacedLayer& layer : shapes_) taken[layer.device] += layer.entry_bytes() * tokens;
  const auto add = [&](const DeviceCache& cache) {
    for (const auto& [device, bytes] : cache.bytes_by_device()) taken[device] += bytes;
  };
  for (const DeviceCache& cache : spare_) add(cache);
  for (const DeviceMirror* mirror : used_) {
    if (mirror->cache_) add(*mirror->cache_);
  }
  return std::ranges::all_of(taken, [&](const auto& on) { return on.second <= limits_.at(on.first); });
}

void DeviceMirrors::give_up(int64_t device, int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  limits_.at(device) = std::max<int64_t>(0, limits_.at(device) - bytes);
}

/// Where even that is not enough, the device itself refuses.
bool DeviceMirrors::make_room(int64_t tokens, std::span<DeviceMirror* const> needed) {
  const std::scoped_lock lock(mutex_);
  while (!spare_.empty() && !has_room(tokens)) spare_.pop_front();
  for (DeviceMirror* mirror : used_) {
    if (has_room(tokens)) return true;
    if (!mirror->cache_ || mirror->expects_ || std::ranges::find(needed, mirror) != needed.end()) continue;
    mirror->drop();
    ++evictions_;
  }
  return has_room(tokens);
}

void DeviceMirrors::copy_origin(DeviceMirror& mirror, int64_t capacity, std::vector<DeviceMirror*> needed) {
  const std::optional<DeviceMirror::Origin> origin = std::exchange(mirror.origin_, std::nullopt);
  if (!origin) return;
  const auto found = [&]() -> DeviceMirror* {
    const auto at = std::ranges::find_if(used_, [&](const DeviceMirror* other) { return other->holds(*origin); });
    return at == used_.end() ? nullptr : *at;
  };
  {
    const std::scoped_lock lock(mutex_);
    needed.push_back(found());
  }
  if (needed.back() == nullptr || !make_room(capacity, needed)) return;
  const std::scoped_lock lock(mutex_);
  if (const DeviceMirror* from = found(); from != nullptr) {
    mirror.cache_.emplace(from->cache_->copy(origin->length, capacity));
    ++copies_;
  }
}

/// Copies anew; layers that are alike stay where they are as long as there is room.
void DeviceMirrors::renew(DeviceMirror& mirror, KvCache& host, int64_t tokens, int64_t visited,
                          std::span<DeviceMirror* const> needed) {
  const std::vector<bool> alike = mirror.alike(host);
  const bool stays = std::ranges::count(alike, true) > 0 && mirror.cache_->capacity() >= tokens;
  const int64_t expected = stays ? tokens : std::max(tokens, host.prompt_length) + kDecodeHeadroom;
  RecycledCache former{.cache = std::exchange(mirror.cache_, std::nullopt)};
  if (stays) former.alike = alike;
  make_room(expected, needed);
  uploads_ += any_goes_up(host, former.alike) ? 1 : 0;
  mirror.cache_.emplace(shapes_, host, expected - host.length, std::move(former), visited);
  mirror.layers_.resize(host.layers.size());
  mirror.record(host);
}

std::vector<DeviceCache*> DeviceMirrors::of(std::span<const GrowingCache> grown, int64_t visited) {
  std::vector<DeviceMirror*> mirrors;
  for (const GrowingCache& one : grown) mirrors.push_back(&mirror_of(*one.host));
  std::vector<DeviceCache*> caches;
  for (size_t i = 0; i < grown.size(); ++i) {
    KvCache& host = *grown[i].host;
    const int64_t needed = host.length + grown[i].tokens;
    if (grown[i].arriving) {
      caches.push_back(&*mirrors[i]->cache_);
      continue;
    }
    mirrors[i]->expects_ = false;
    copy_origin(*mirrors[i], std::max(needed, host.prompt_length) + kDecodeHeadroom, mirrors);
    if (!mirrors[i]->follow(host, visited)) {
      renew(*mirrors[i], host, needed, visited, mirrors);
    } else {
      if (needed > mirrors[i]->cache_->capacity()) make_room(needed, mirrors);  // it moves: both at once
      mirrors[i]->take_new(host, visited);
    }
    mirrors[i]->count(host);
    caches.push_back(&*mirrors[i]->cache_);
  }
  return caches;
}

void DeviceMirrors::appended(KvCache& host, int64_t layer) {
  auto& mirror = static_cast<DeviceMirror&>(*host.mirror);
  mirror.record(host, static_cast<size_t>(layer));
  if (layer + 1 == std::ssize(host.layers)) mirror.expects_ = false;  // all have come
}

void DeviceMirrors::add_sums(const DeviceCache& copy, int64_t layer, const LayerQueries& queries, const float* lse,
                             std::span<const kernels::QuerySum> sums) {
  const std::scoped_lock lock(mutex_);
  const int64_t device = copy.shape(layer).device;
  const kernels::CudaDeviceScope here(device);
  sums_[device].add(copy, layer, queries, lse, sums);
}

DeviceMirrors::LayerScope::LayerScope(KvCache& host, int64_t layer) : host_(&host.layers[static_cast<size_t>(layer)]) {
  auto& mirror = static_cast<DeviceMirror&>(*host.mirror);
  EntrySegment& tail = host_->tail();
  bool alone = true;  // nothing in front of the tail has become part of the copy's runs
  for (int64_t head = 0; head < tail.shape().kv_heads; ++head)
    alone = alone && mirror.cache_->held(layer, head) == tail.entries(head);
  if (alone)
    tail.use_mirror(copies_.emplace_back(std::make_unique<DeviceMirror::SegmentCopy>(mirror, layer, tail)).get());
  for (const auto& segment : host_->segments()) {
    for (const DeviceSegment& front : mirror.cache_->fronts(layer)) {
      if (front.version() != segment->version() || front.has_steps()) continue;
      segment->use_mirror(
          copies_.emplace_back(std::make_unique<DeviceMirror::SegmentCopy>(mirror, layer, front)).get());
    }
  }
}

DeviceMirrors::LayerScope::~LayerScope() {
  for (const auto& segment : host_->segments()) segment->use_mirror(nullptr);
}

}  // namespace kvarena::device
