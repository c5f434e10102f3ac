#include "harness/device/device_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "harness/core/error.h"

namespace kvarena::device {

using kernels::CellKind;
using kernels::Cells;

PlacedMemory::PlacedMemory(Placement placement, int64_t bytes) {
  if (placement == Placement::device) {
    device_.reserve(bytes);
  } else {
    pinned_ = std::make_unique<kernels::PinnedBuffer>(bytes);
  }
}

char* PlacedMemory::data() const { return static_cast<char*>(pinned_ ? pinned_->data() : device_.data()); }

DeviceCache::DeviceCache(std::vector<PlacedLayer> layers, Placement placement, int64_t entries)
    : layers_(std::move(layers)), placement_(placement) {
  static std::atomic<int64_t> made{0};
  id_ = made++;
  for (const PlacedLayer& layer : layers_) {
    const PlacedLayer& first = layers_.front();
    on_devices_.try_emplace(layer.device);
    KVARENA_ASSERT(layer.kv_heads == first.kv_heads && layer.head_dim == first.head_dim && layer.dtype == first.dtype,
                   "layers of different shapes");
  }
  fronts_.resize(layers_.size());
  kept_.resize(layers_.size());
  dropped_.resize(layers_.size() * static_cast<size_t>(layers_.front().kv_heads));
  if (entries > 0) reserve(entries);
}

int64_t DeviceCache::head_bytes(int64_t room) const {
  return kernels::cell_bytes(room, layers_.front().head_dim, layers_.front().dtype);
}

std::span<const int64_t> DeviceCache::dropped(int64_t layer) const {
  const int64_t kv_heads = layers_.front().kv_heads;
  return std::span(dropped_).subspan(static_cast<size_t>(layer * kv_heads), static_cast<size_t>(kv_heads));
}

int64_t DeviceCache::first_byte(int64_t layer, int64_t head, int64_t tokens) const {
  int64_t at = 0;
  for (const int64_t missing : dropped(layer).first(static_cast<size_t>(head))) at += 2 * head_bytes(tokens - missing);
  return at;
}

DeviceBytes DeviceCache::bytes_by_device() const {
  DeviceBytes bytes;
  for (size_t layer = 0; layer < memory_.size(); ++layer) {
    int64_t& sum = bytes[layers_[layer].device];
    sum += first_byte(static_cast<int64_t>(layer), layers_.front().kv_heads, capacity_);
    for (const DeviceSegment& front : fronts_[layer]) sum += front.bytes();
  }
  for (const auto& [device, own] : on_devices_) {
    bytes[device] += own.spare.memory.bytes();
    for (const auto& [layer, slots] : own.slots) bytes[device] += slots.bytes();
  }
  return bytes;
}

int64_t DeviceCache::bytes() const {
  int64_t total = 0;
  for (const auto& [device, bytes] : bytes_by_device()) total += bytes;
  return total;
}

int64_t DeviceCache::device_bytes() const {
  int64_t total = placement_ == Placement::device ? bytes() : 0;
  for (const auto& [device, own] : on_devices_) {
    for (const Window& window : own.windows) total += window.memory.bytes();
  }
  return total;
}

int64_t DeviceCache::fetched_bytes() const {
  const LayerShape& shape = layers_.front();
  return fetched_entries_ * 2 * shape.head_dim * kernels::size_of(shape.dtype);
}

int64_t DeviceCache::capacity_for(int64_t tokens) const {
  if (tokens <= capacity_) return capacity_;
  return rounded(memory_.empty() ? tokens : std::max(tokens, capacity_ + capacity_ / 2));
}

void DeviceCache::reserve(int64_t tokens) {
  if (tokens <= capacity_) return;
  const int64_t capacity = capacity_for(tokens), kv_heads = layers_.front().kv_heads;
  std::vector<PlacedMemory> grown;
  for (int64_t layer = 0; layer < std::ssize(layers_); ++layer) {
    const kernels::CudaDeviceScope here(layers_[layer].device);
    grown.emplace_back(placement_, first_byte(layer, kv_heads, capacity));
    if (memory_.empty() || length_ == 0) continue;
    for (int64_t head = 0; head < kv_heads; ++head) {
      const char* from = memory_[layer].data() + first_byte(layer, head, capacity_);
      char* to = grown.back().data() + first_byte(layer, head, capacity);
      const int64_t held = head_bytes(entries(layer, head)), missing = dropped(layer)[head];
      kernels::cuda_copy(to, from, held, nullptr);
      kernels::cuda_copy(to + head_bytes(capacity - missing), from + head_bytes(capacity_ - missing), held, nullptr);
    }
    kernels::cuda_synchronize(nullptr);
    memory_[layer] = {};  // a layer at a time is held twice
  }
  memory_ = std::move(grown);
  capacity_ = capacity;
  ++moves_;
}

std::vector<kernels::HeadRun> DeviceCache::runs(int64_t layer) const {
  KVARENA_ASSERT(placement_ == Placement::device, "entries that are not there");
  std::vector<kernels::HeadRun> runs;
  for (int64_t h = 0; h < layers_[layer].kv_heads; ++h) {
    runs.push_back({.keys = cells(layer, h, CellKind::keys).data,
                    .values = cells(layer, h, CellKind::values).data,
                    .entries = entries(layer, h)});
  }
  return runs;
}

Cells DeviceCache::cells(int64_t layer, int64_t head, CellKind kind) const {
  const LayerShape& shape = layers_.front();
  const int64_t values = kind == CellKind::keys ? 0 : head_bytes(capacity_ - dropped(layer)[head]);
  return {.kind = placement_ == Placement::host ? CellKind::values : kind,
          .dtype = shape.dtype,
          .head_dim = shape.head_dim,
          .data = memory_[layer].data() + first_byte(layer, head, capacity_) + values};
}

Cells DeviceCache::cells(const Window& window, int64_t head, CellKind kind) const {
  const LayerShape& shape = layers_.front();
  const int64_t run = 2 * head + (kind == CellKind::keys ? 0 : 1);
  return {.kind = kind,
          .dtype = shape.dtype,
          .head_dim = shape.head_dim,
          .data = static_cast<char*>(window.memory.data()) + run * head_bytes(room_)};
}

void DeviceCache::fill(int64_t entries) {
  KVARENA_ASSERT(length_ == 0, "a cache that holds something");
  reserve(entries);
  const int64_t bytes = 2 * layers_.front().kv_heads * head_bytes(capacity_);
  const std::vector<char> zeros(static_cast<size_t>(std::min<int64_t>(bytes, 1 << 24)));
  for (const PlacedMemory& layer : memory_) {
    for (int64_t at = 0; at < bytes; at += std::ssize(zeros)) {
      const int64_t count = std::min(bytes - at, std::ssize(zeros));
      if (placement_ == Placement::host) {
        std::memset(layer.data() + at, 0, static_cast<size_t>(count));
      } else if (&layer == memory_.data()) {
        kernels::cuda_upload(layer.data() + at, zeros.data(), count, nullptr);
      }
    }
    if (placement_ == Placement::device && &layer != memory_.data()) {
      kernels::cuda_copy(layer.data(), memory_.front().data(), bytes, nullptr);
    }
  }
  kernels::cuda_synchronize(nullptr);
  length_ = entries;
}

DeviceCache DeviceCache::copy(int64_t length, int64_t capacity) const {
  KVARENA_ASSERT(full() && placement_ == Placement::device && length <= length_, "entries that are not there");
  DeviceCache made(layers_, Placement::device, capacity);
  made.prompt_length = prompt_length;
  made.length_ = length;
  for (int64_t layer = 0; layer < std::ssize(layers_); ++layer) {
    const kernels::CudaDeviceScope here(layers_[layer].device);
    for (int64_t head = 0; head < layers_.front().kv_heads; ++head) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        kernels::cuda_copy(made.cells(layer, head, kind).data, cells(layer, head, kind).data, head_bytes(length),
                           nullptr);
      }
    }
  }
  for (const auto& [device, own] : on_devices_) {
    const kernels::CudaDeviceScope here(device);
    kernels::cuda_synchronize(nullptr);
  }
  return made;
}

void DeviceCache::truncate(int64_t length) {
  KVARENA_ASSERT(may_truncate(length),
                 fmt::format("{} of {}, entries dropped before {}", length, length_, first_kept_));
  changes_ += length < length_ ? 1 : 0;
  length_ = length;
  for (std::vector<int32_t>& head : held_) std::erase_if(head, [&](int32_t position) { return position >= length; });
  for (int64_t layer = 0; layer < std::ssize(kept_); ++layer) {
    for (int64_t head = 0; head < std::ssize(kept_[layer]); ++head)
      std::erase_if(kept_[layer][head], [&](int32_t entry) { return entry >= entries(layer, head); });
  }
}

void DeviceCache::keep(int64_t layer, std::vector<std::vector<int32_t>> entries) {
  KVARENA_ASSERT(std::ssize(entries) == layers_.front().kv_heads && placement_ == Placement::device,
                 "a list for each head of a cache on the device");
  ++changes_;
  kept_[layer] = std::move(entries);
}

/// Makes windows anew; what they held is lost.
void DeviceCache::make_windows(int64_t room) {
  const int64_t kv_heads = layers_.front().kv_heads, bytes = kv_heads * 2 * head_bytes(room);
  held_.assign(static_cast<size_t>(kv_heads), {});
  room_ = room;
  for (auto& [device, own] : on_devices_) {
    const kernels::CudaDeviceScope here(device);
    own.windows.clear();
    own.windows.resize(chosen_ ? layers_.size() + 1 : 2);
    for (size_t i = 0; i < own.windows.size(); ++i) {
      const bool elsewhere = chosen_ && i < layers_.size() && layers_[i].device != device;
      if (!elsewhere) own.windows[i].memory.reserve(bytes);
    }
  }
}

void DeviceCache::choose(const std::vector<std::vector<int32_t>>* positions, int64_t fresh) {
  const int64_t kv_heads = layers_.front().kv_heads;
  const bool chosen = positions != nullptr, shared = chosen == chosen_ && room_ > 0;
  chosen_ = chosen;
  fetched_entries_ = 0;
  counts_.assign(static_cast<size_t>(kv_heads), length_);
  lists_.assign(static_cast<size_t>(kv_heads), {});
  for (int64_t h = 0; chosen && h < kv_heads; ++h) {
    const std::vector<int32_t>& wanted = positions->at(static_cast<size_t>(h));
    KVARENA_ASSERT(wanted.empty() || (wanted.front() >= 0 && wanted.back() < length_),
                   fmt::format("a position outside the cache's {}", length_));
    KVARENA_ASSERT(std::ranges::is_sorted(wanted, std::ranges::less_equal{}), "positions that do not ascend");
    counts_[h] = std::ssize(wanted);
  }
  if (placement_ == Placement::device) {
    for (int64_t h = 0; chosen && h < kv_heads; ++h) {
      lists_[h] = (*positions)[h];
      for (int64_t i = 0; i < fresh; ++i) lists_[h].push_back(static_cast<int32_t>(length_ + i));
    }
    return;
  }
  const int64_t needed = std::ranges::max(counts_) + fresh;
  if (!shared || needed > room_) {
    constexpr int64_t kBlock = 64;  // so that a budget and some tokens of a verification fit without moving
    const int64_t room = chosen ? (needed + kBlock - 1) / kBlock * kBlock : std::max(capacity_, needed);
    make_windows(room);
  }
  if (chosen) {
    find_in_windows(*positions);
  } else {
    fetched_entries_ = std::ssize(layers_) * kv_heads * length_;
  }
}

void DeviceCache::find_in_windows(const std::vector<std::vector<int32_t>>& positions) {
  for (size_t h = 0; h < positions.size(); ++h) {
    auto held = held_[h].begin();
    for (const int32_t wanted : positions[h]) {
      while (held != held_[h].end() && *held < wanted) ++held;
      const bool here = held != held_[h].end() && *held == wanted;
      lists_[h].push_back(here ? static_cast<int32_t>(held - held_[h].begin()) : ~wanted);
      if (!here) fetched_entries_ += std::ssize(layers_);
    }
    held_[h] = positions[h];
  }
}

DeviceCache::Window& DeviceCache::window(int64_t layer) {
  return beside(layer).windows[static_cast<size_t>(chosen_ ? layer : layer % 2)];
}

void DeviceCache::advance(int64_t fresh) {
  if (chosen_) {
    for (std::vector<int32_t>& head : held_) {  // none on the device
      for (int64_t i = 0; i < fresh; ++i) head.push_back(static_cast<int32_t>(length_ + i));
    }
  }
  for (int64_t layer = 0; layer < std::ssize(kept_); ++layer) {
    for (int64_t head = 0; head < std::ssize(kept_[layer]); ++head) {
      for (int64_t i = 0; i < fresh; ++i) kept_[layer][head].push_back(static_cast<int32_t>(entries(layer, head) + i));
    }
  }
  length_ += fresh;
}

}  // namespace kvarena::device
