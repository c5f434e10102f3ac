// Copies on the device whose caches come back layer by layer from behind it.

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "harness/device/device_errors.h"
#include "harness/device/device_mirrors.h"

namespace kvarena::device {

bool DeviceMirror::expect(const KvCache& cache) {
  release();
  if (!DeviceCache::cannot_hold(all_->shapes_, cache, /*visited=*/0).empty()) return false;
  const int64_t room = cache.length + kDecodeHeadroom;
  try {
    cache_ = all_->take_spare(room);
    if (!cache_) {
      if (!all_->make_room(room, {})) return false;
      cache_.emplace(all_->shapes_, Placement::device, room);
    }
    cache_->prompt_length = cache.prompt_length;
    cache_->expect(cache.length);
  } catch (const UserError&) {
    throw;
  } catch (const std::runtime_error&) {  // of CUDA, as a pass will say that needs the room
    drop();
    return false;
  }
  count(cache);
  layers_.assign(cache.layers.size(), {});
  expects_ = true;
  return true;
}

std::function<void()> DeviceMirror::receive(int64_t layer, std::span<const kernels::HeadRun> heads) {
  const int64_t device = all_->shapes_[static_cast<size_t>(layer)].device;
  return on_device(
      [&]() -> std::function<void()> {
        const kernels::CudaDeviceScope here(device);
        const kernels::CudaStream stream = all_->bus_.at(device).stream();
        const int64_t bytes = cache_->receive(layer, heads, stream);
        all_->received_bytes_ += bytes;
        count(std::max<int64_t>(0, counted_ - bytes));  // the host's cache has these now
        const auto there = std::make_shared<kernels::CudaMark>();
        there->record(stream);
        return [there] { on_device([&] { there->wait(); }, [] {}); };
      },
      [] {});
}

void DeviceMirror::release() {
  if (cache_ && cache_->full()) {
    const std::scoped_lock lock(all_->mutex_);
    cache_->truncate(0);
    all_->spare_.push_back(std::move(*cache_));
  }
  drop();
  origin_.reset();
  expects_ = false;
}

bool DeviceMirrors::expects(const KvCache& host, int64_t tokens) const {
  const auto* const mirror = dynamic_cast<const DeviceMirror*>(host.mirror.get());
  return mirror != nullptr && mirror->all_.get() == this && mirror->expects_ &&
         mirror->cache_->length() == host.length && mirror->cache_->capacity() >= host.length + tokens;
}

std::optional<DeviceCache> DeviceMirrors::take_spare(int64_t tokens) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find_if(spare_, [&](const DeviceCache& cache) {
    return cache.capacity() >= tokens && cache.capacity() <= tokens + tokens / 4 + 2 * kDecodeHeadroom;
  });
  if (found == spare_.end()) return std::nullopt;
  std::optional<DeviceCache> taken(std::move(*found));
  spare_.erase(found);
  return taken;
}

}  // namespace kvarena::device
