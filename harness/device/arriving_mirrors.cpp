// Copies on the device whose caches come back layer by layer from behind it.

#include <algorithm>
#include <optional>
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
    std::optional<DeviceCache> made = all_->take_spare(*this, room);
    if (!made) {
      if (!all_->reserve(*this, all_->shapes_, DeviceCache::rounded(room), /*beside=*/false,
                         DeviceMirrors::When::ahead))
        return false;
      made.emplace(all_->shapes_, Placement::device, room);
    }
    made->prompt_length = cache.prompt_length;
    made->expect(cache.length);
    expects_ = true;
    DeviceMirrors::Copy held;
    all_->put(*this, std::move(*made), held);
  } catch (const UserError&) {
    throw;
  } catch (const std::runtime_error&) {  // of CUDA, as a pass will say that needs the room
    release();
    return false;
  }
  count(cache);
  layers_.assign(cache.layers.size(), {});
  return true;
}

std::function<void()> DeviceMirror::receive(int64_t layer, std::span<const kernels::HeadRun> heads) {
  const int64_t device = all_->shapes_[static_cast<size_t>(layer)].device;
  const auto here = [device](const auto& work) {
    on_device(
        [&] {
          const kernels::CudaDeviceScope scope(device);
          work();
        },
        [] {});
  };
  here([&] {
    const int64_t bytes = cache_->receive(layer, heads);
    all_->received_bytes_ += bytes;
    count(std::max<int64_t>(0, counted_ - bytes));  // the host's cache has these now
  });
  return [here] { here([] { kernels::cuda_synchronize(nullptr); }); };
}

void DeviceMirror::release() {
  {
    std::unique_lock lock(all_->mutex_);
    DeviceMirrors::Copy gone = drop();
    if (gone.use_count() == 1 && gone->full()) {
      gone->truncate(0);
      all_->spare_.push_back(std::move(gone));
    }
    all_->free(std::move(gone), lock);
  }
  origin_.reset();
  expects_ = false;
}

bool DeviceMirrors::expects(const KvCache& host, int64_t tokens) const {
  const auto* const mirror = dynamic_cast<const DeviceMirror*>(host.mirror.get());
  return mirror != nullptr && mirror->all_.get() == this && mirror->expects_ &&
         mirror->cache_->length() == host.length && mirror->cache_->capacity() >= host.length + tokens;
}

std::optional<DeviceCache> DeviceMirrors::take_spare(DeviceMirror& mirror, int64_t tokens) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find_if(spare_, [&](const Copy& cache) {
    return cache->capacity() >= tokens && cache->capacity() <= tokens + tokens / 4 + 2 * kDecodeHeadroom;
  });
  if (found == spare_.end()) return std::nullopt;
  std::optional<DeviceCache> taken(std::move(**found));
  spare_.erase(found);
  mirror.taken_ = taken->bytes_by_device();
  return taken;
}

}  // namespace kvarena::device
