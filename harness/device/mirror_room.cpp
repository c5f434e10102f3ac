// Room on the devices that copies of caches share: which are made when, and which go.

#include <algorithm>
#include <utility>

#include "harness/core/error.h"
#include "harness/device/device_mirrors.h"

namespace kvarena::device {
namespace {

/// Whether some run of a new copy has to be filled from the host.
bool any_goes_up(const KvCache& host, const std::vector<bool>& alike) {
  if (alike.empty()) return host.length > 0;
  for (size_t layer = 0; layer < host.layers.size(); ++layer) {
    if (!alike[layer] && DeviceCache::entries_in_runs(host.layers[layer]).front() > 0) return true;
  }
  return false;
}

}  // namespace

HeldCopies::HeldCopies(std::shared_ptr<DeviceMirrors> all, size_t count) : all_(std::move(all)), copies_(count) {}

HeldCopies::~HeldCopies() {
  if (all_ == nullptr) return;
  std::unique_lock lock(all_->mutex_);
  for (auto& copy : copies_) all_->free(std::move(copy), lock);
}

DeviceMirrors::DeviceMirrors(std::vector<PlacedLayer> layers, DeviceBytes limits)
    : shapes_(std::move(layers)), limits_(std::move(limits)) {}

DeviceMirror& DeviceMirrors::mirror_of(KvCache& host, Copy& held) {
  auto* mirror = dynamic_cast<DeviceMirror*>(host.mirror.get());
  if (mirror == nullptr || mirror->all_.get() != this) {
    host.mirror = std::make_unique<DeviceMirror>(shared_from_this());
    mirror = static_cast<DeviceMirror*>(host.mirror.get());
  }
  const std::scoped_lock lock(mutex_);
  used_.splice(used_.end(), used_, std::ranges::find(used_, mirror));
  (void)mirror->taken();
  held = mirror->cache_;
  return *mirror;
}

bool DeviceMirrors::fits(const DeviceMirror* mirror, DeviceBytes taken, bool alone) const {
  const auto add = [&](const DeviceBytes& more) {
    for (const auto& [device, bytes] : more) taken[device] += bytes;
  };
  for (const Copy& cache : spare_) {
    if (!alone) add(cache->bytes_by_device());
  }
  for (const DeviceBytes& bytes : going_) {
    if (!alone) add(bytes);
  }
  for (DeviceMirror* other : used_) {
    if (other != mirror && !(alone && other->idle())) add(other->taken());
  }
  return std::ranges::all_of(taken, [&](const auto& on) { return on.second <= limits_.at(on.first); });
}

void DeviceMirrors::free(Copy gone, std::unique_lock<std::mutex>& lock) {
  if (gone == nullptr || gone.use_count() > 1) return;
  const auto counted = going_.insert(going_.end(), gone->bytes_by_device());
  lock.unlock();
  gone.reset();
  lock.lock();
  going_.erase(counted);
  settled_.notify_all();
}

bool DeviceMirrors::make_room(const DeviceMirror* mirror, const DeviceBytes& taken, When when,
                              std::unique_lock<std::mutex>& lock) {
  while (!fits(mirror, taken, /*alone=*/false)) {
    if (when == When::ahead && !fits(mirror, taken, /*alone=*/true)) return false;
    const auto last = std::ranges::find_if(used_, [&](DeviceMirror* one) { return one != mirror && one->idle(); });
    if (!spare_.empty()) {
      Copy gone = std::move(spare_.front());
      spare_.pop_front();
      free(std::move(gone), lock);
    } else if (last != used_.end()) {
      ++evictions_;
      free((*last)->drop(), lock);
    } else if (ahead_ > 0 || !going_.empty()) {
      settled_.wait(lock);
    } else {
      break;  // the device itself may refuse
    }
  }
  return true;
}

bool DeviceMirrors::reserve(DeviceMirror& mirror, std::span<const PlacedLayer> layers, int64_t tokens, bool beside,
                            When when) {
  std::unique_lock lock(mutex_);
  DeviceBytes wanted;
  for (const PlacedLayer& layer : layers) wanted[layer.device] += layer.entry_bytes() * tokens;
  for (auto& [device, bytes] : wanted) {
    const int64_t held = mirror.taken_[device];
    bytes = beside ? held + bytes : std::max(held, bytes);
  }
  if (!make_room(&mirror, wanted, when, lock)) return false;
  mirror.taken_ = std::move(wanted);
  return true;
}

void DeviceMirrors::give_up(int64_t device, int64_t bytes) {
  std::unique_lock lock(mutex_);
  limits_.at(device) -= bytes;
  make_room(nullptr, {}, When::now, lock);
}

void DeviceMirrors::put(DeviceMirror& mirror, DeviceCache made, Copy& held) {
  const std::scoped_lock lock(mutex_);
  held = mirror.cache_ = std::make_shared<DeviceCache>(std::move(made));
}

void DeviceMirrors::copy_origin(DeviceMirror& mirror, int64_t capacity, Copy& held) {
  const std::optional<DeviceMirror::Origin> origin = std::exchange(mirror.origin_, std::nullopt);
  if (!origin) return;
  HeldCopies from(shared_from_this(), 1);
  {
    const std::scoped_lock lock(mutex_);
    const auto at = std::ranges::find_if(used_, [&](const DeviceMirror* other) { return other->holds(*origin); });
    if (at == used_.end()) return;
    (void)(*at)->taken();
    from.copies_.front() = (*at)->cache_;
  }
  if (!reserve(mirror, shapes_, DeviceCache::rounded(capacity), /*beside=*/false, When::ahead)) return;
  put(mirror, from.front()->copy(origin->length, capacity), held);
  ++copies_;
}

/// Layers that are alike stay where they are as long as there is room.
bool DeviceMirrors::renew(DeviceMirror& mirror, const GrowingCache& grown, int64_t visited, When when, Copy& held) {
  KvCache& host = *grown.host;
  const int64_t tokens = host.length + grown.tokens;
  const std::vector<bool> alike = mirror.alike(host);
  const bool stays = std::ranges::count(alike, true) > 0 && mirror.cache_->capacity() >= tokens;
  const int64_t expected = stays ? tokens : std::max(tokens, host.prompt_length) + kDecodeHeadroom;
  RecycledCache former;
  if (stays) former.alike = alike;
  {
    const std::scoped_lock lock(mutex_);
    held.reset();
    if (mirror.cache_) former.cache.emplace(std::move(*std::exchange(mirror.cache_, nullptr)));
  }
  if (!reserve(mirror, shapes_, DeviceCache::rounded(expected), /*beside=*/false, when)) return false;
  uploads_ += any_goes_up(host, former.alike) ? 1 : 0;
  put(mirror, DeviceCache(shapes_, host, expected - host.length, std::move(former), visited), held);
  mirror.layers_.resize(host.layers.size());
  mirror.record(host);
  return true;
}

DeviceMirrors::Settling::~Settling() {
  const std::scoped_lock lock(all->mutex_);
  mirror->taken_ = mirror->cache_ ? mirror->cache_->bytes_by_device() : DeviceBytes{};
}

bool DeviceMirrors::bring(DeviceMirror& mirror, const GrowingCache& grown, int64_t visited, When when, Copy& held) {
  const Settling settling{.all = this, .mirror = &mirror};
  KvCache& host = *grown.host;
  const int64_t needed = host.length + grown.tokens;
  mirror.expects_ = false;
  copy_origin(mirror, std::max(needed, host.prompt_length) + kDecodeHeadroom, held);
  bool there = true;
  if (!mirror.follow(host, visited)) {
    there = renew(mirror, grown, visited, when, held);
  } else {
    const int64_t capacity = mirror.cache_->capacity_for(needed);
    there =
        capacity == mirror.cache_->capacity() || reserve(mirror, shapes_, capacity, /*beside=*/true, when);  // it moves
    if (there) mirror.take_new(host, visited);
  }
  mirror.count(host);
  return there;
}

HeldCopies DeviceMirrors::of(std::span<const GrowingCache> grown, int64_t visited) {
  HeldCopies held(shared_from_this(), grown.size());
  std::vector<DeviceMirror*> mirrors;
  for (size_t i = 0; i < grown.size(); ++i) mirrors.push_back(&mirror_of(*grown[i].host, held.copies_[i]));
  for (size_t i = 0; i < grown.size(); ++i) {
    if (!grown[i].arriving) bring(*mirrors[i], grown[i], visited, When::now, held.copies_[i]);
  }
  return held;
}

HeldCopies DeviceMirrors::of_layers(KvCache& host, int64_t tokens) {
  host.mirror.reset();
  HeldCopies held(shared_from_this(), 1);
  DeviceMirror& mirror = mirror_of(host, held.copies_.front());
  const Settling settling{.all = this, .mirror = &mirror};
  std::vector<PlacedLayer> layers;
  for (const PlacedLayer& layer : shapes_) {
    if (layers.empty() || layers.back().device != layer.device) layers.push_back(layer);
  }
  reserve(mirror, layers, DeviceCache::rounded(tokens), /*beside=*/false, When::now);
  put(mirror, DeviceCache(std::move(layers), Placement::device, tokens), held.copies_.front());
  mirror.count(host);
  return held;
}

void DeviceMirrors::upload(KvCache& host, int64_t tokens) {
  const int64_t layers = std::ssize(shapes_);
  if (!DeviceCache::cannot_hold(shapes_, host, layers).empty()) return;
  /// Passes that need the room wait for those under way.
  struct UnderWay {
    explicit UnderWay(DeviceMirrors& mirrors) : all(&mirrors) {
      const std::scoped_lock lock(all->mutex_);
      ++all->ahead_;
    }
    ~UnderWay() {
      const std::scoped_lock lock(all->mutex_);
      --all->ahead_;
      all->settled_.notify_all();
    }
    DeviceMirrors* all;
  };
  const UnderWay under_way(*this);
  HeldCopies held(shared_from_this(), 1);  // let go before
  DeviceMirror& mirror = mirror_of(host, held.copies_.front());
  bring(mirror, {.host = &host, .tokens = tokens}, layers, When::ahead, held.copies_.front());
}

}  // namespace kvarena::device
