// Caches that go from the host to the device: whole ones, and what methods left.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "harness/core/error.h"
#include "harness/device/device_cache.h"

namespace kvarena::device {
namespace {

using kernels::CellKind;
using kernels::Cells;

Cells cells_of(const LayerShape& shape, CellKind kind, const void* data) {
  // Cells that are only read take the same struct.
  return {.kind = kind, .dtype = shape.dtype, .head_dim = shape.head_dim, .data = const_cast<void*>(data)};
}

/// Items of a layer that become its runs.
std::vector<AttentionItem> run_items(const LayerCache& layer) {
  std::vector<AttentionItem> items;
  for (const auto& segment : layer.segments()) {
    AttentionItem item = stored_item(*segment);
    if (in_runs(item)) items.push_back(std::move(item));
  }
  return items;
}

/// One kind of one head's entries from `first` on, one behind the other in cells of their own.
std::vector<std::byte> joined(const std::vector<AttentionItem>& items, const LayerShape& shape, int64_t head,
                              CellKind kind, int64_t first, int64_t entries) {
  std::vector<std::byte> bytes(static_cast<size_t>(kernels::cell_bytes(entries - first, shape.head_dim, shape.dtype)));
  int64_t before = 0;
  for (const AttentionItem& item : items) {
    const kernels::HeadRun& run = item.runs[head];
    const int64_t skipped = std::clamp<int64_t>(first - before, 0, run.entries), taken = run.entries - skipped;
    const Cells from = cells_of(shape, kind, kind == CellKind::keys ? run.keys : run.values);
    if (taken > 0)
      kernels::copy_entries(from, skipped, taken, cells_of(shape, kind, bytes.data()), before + skipped - first);
    before += run.entries;
  }
  return bytes;
}

/// Whether a layer's entries are those of the newest of so many tokens, without a gap: what a window shows of them can
/// be counted from the end.
bool holds_newest(const LayerCache& host, int64_t length) {
  const EntrySegment& tail = host.tail();
  if (host.segments().size() > 1 || tail.ragged() || tail.entries(0) == 0) return false;
  return tail.position(0, tail.entries(0) - 1) + 1 == length;
}

}  // namespace

std::vector<int64_t> DeviceCache::entries_in_runs(const LayerCache& host) {
  std::vector<int64_t> entries(static_cast<size_t>(host.shape().kv_heads));
  for (const AttentionItem& item : run_items(host)) {
    for (size_t head = 0; head < entries.size(); ++head) entries[head] += item.runs[head].entries;
  }
  return entries;
}

std::string DeviceCache::cannot_hold(std::span<const PlacedLayer> layers, const KvCache& host, int64_t visited) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerCache& layer = host.layers[i];
    if (layer.shape().dtype != layers[i].dtype) {
      return fmt::format("entries in {} for a cache of {}", kernels::name_of(layer.shape().dtype),
                         kernels::name_of(layers[i].dtype));
    }
    for (const auto& segment : layer.segments()) {
      const AttentionItem item = stored_item(*segment);
      if (in_runs(item)) continue;
      if (std::string why = DeviceSegment::unsupported_reason(item); !why.empty()) return why;
    }
    const bool windowed = layers[i].window > 0 && std::cmp_less(i, visited);
    for (int64_t head = 0; windowed && !holds_newest(layer, host.length) && head < layers[i].kv_heads; ++head) {
      if (layer.entries(head) == host.length) continue;
      return fmt::format("{} entries of {} tokens under a sliding window", layer.entries(head), host.length);
    }
  }
  return {};
}

void DeviceCache::expect(int64_t entries) {
  KVARENA_ASSERT(length_ == 0 && placement_ == Placement::device, "a cache that holds something");
  reserve(entries);
  for (int64_t layer = 0; layer < std::ssize(layers_); ++layer) {
    const kernels::CudaDeviceScope here(layers_[layer].device);
    kernels::cuda_clear(memory_[layer].data(), first_byte(layer, layers_.front().kv_heads, capacity_), nullptr);
  }
  finish_uploads();
  length_ = entries;
}

int64_t DeviceCache::receive(int64_t layer, std::span<const kernels::HeadRun> heads) {
  const int64_t bytes = head_bytes(length_);
  for (int64_t head = 0; head < std::ssize(heads); ++head) {
    const kernels::HeadRun& run = heads[static_cast<size_t>(head)];
    KVARENA_ASSERT(run.entries == length_, fmt::format("{} entries", run.entries));
    kernels::cuda_upload(cells(layer, head, CellKind::keys).data, run.keys, bytes, nullptr);
    kernels::cuda_upload(cells(layer, head, CellKind::values).data, run.values, bytes, nullptr);
  }
  return 2 * std::ssize(heads) * bytes;
}

void DeviceCache::follow_packed(const KvCache& host) {
  bool changed = false;
  for (size_t layer = 0; layer < fronts_.size(); ++layer) {
    const kernels::CudaDeviceScope here(layers_[layer].device);
    OnDevice& own = beside(static_cast<int64_t>(layer));
    std::vector<DeviceSegment>& fronts = fronts_[layer];
    size_t count = 0;
    for (const auto& segment : host.layers[layer].segments()) {
      const AttentionItem item = stored_item(*segment);
      if (in_runs(item)) continue;
      if (count == fronts.size()) {
        fronts.emplace_back(item, own.shared, own.uploads);
        changed = true;
      } else if (fronts[count].version() != item.stored->version()) {
        fronts[count] = DeviceSegment(item, own.shared, own.uploads);
        changed = true;
      } else {
        changed = fronts[count].follow(item, own.uploads) || changed;
      }
      ++count;
    }
    changed = changed || count < fronts.size();
    fronts.erase(fronts.begin() + static_cast<int64_t>(count), fronts.end());
  }
  if (!changed) return;
  finish_uploads();
  ++moves_;
}

void DeviceCache::finish_uploads() {
  for (auto& [device, own] : on_devices_) {
    const kernels::CudaDeviceScope here(device);
    own.uploads.finish();
  }
}

/// Capacities agree where runs are taken over: where a head's memory begins follows from it.
void DeviceCache::take_over(RecycledCache former) {
  if (!former.cache) return;
  DeviceCache& from = *former.cache;
  fronts_ = std::move(from.fronts_);
  on_devices_ = std::move(from.on_devices_);
  if (former.alike.empty()) return;
  capacity_ = from.capacity_;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    PlacedMemory& memory = memory_.emplace_back();
    if (former.alike[layer]) memory = std::move(from.memory_[layer]);
  }
}

DeviceCache::DeviceCache(std::vector<PlacedLayer> layers, const KvCache& host, int64_t tokens, RecycledCache former,
                         int64_t visited)
    : DeviceCache(std::move(layers), Placement::device) {
  if (const std::string why = cannot_hold(layers_, host, visited); !why.empty()) {
    fail({.place = "a cache that goes to the device",
          .found = why,
          .expected =
              "16 or 32 bits a number as the device keeps them or codes as they are, and under a sliding window "
              "the newest tokens' entries",
          .action = "run this method on the host"});
  }
  prompt_length = host.prompt_length;
  std::vector<bool> there = former.alike;
  there.resize(layers_.size());
  take_over(std::move(former));  // the rest of its memory is free for this one's
  KVARENA_ASSERT(memory_.empty() || capacity_ >= host.length + tokens, "no room behind entries that stay");
  follow_packed(host);
  const int64_t kv_heads = layers_.front().kv_heads;
  for (int64_t layer = 0; layer < std::ssize(layers_); ++layer) {
    const std::vector<int64_t> entries = entries_in_runs(host.layers[layer]);
    for (int64_t head = 0; head < kv_heads; ++head) {
      const int64_t missing = host.length - entries[head];
      KVARENA_ASSERT(missing >= 0, fmt::format("{} entries too many", -missing));
      dropped_[static_cast<size_t>(layer * kv_heads + head)] = missing;
      if (missing == 0) continue;
      const bool newest = holds_newest(host.layers[layer], host.length);
      first_kept_ = newest ? std::max(first_kept_, missing) : host.length;
    }
  }
  for (int64_t layer = 0; layer < std::ssize(memory_); ++layer) {
    const kernels::CudaDeviceScope here(layers_[layer].device);
    if (!there[layer]) memory_[layer] = PlacedMemory(Placement::device, first_byte(layer, kv_heads, capacity_));
  }
  reserve(host.length + tokens);
  length_ = host.length;
  upload(host, 0, there);
}

void DeviceCache::rewrite(std::span<const RewrittenEntries> heads) {
  while (!heads.empty()) {
    const auto device_of = [&](const RewrittenEntries& head) { return layers_[head.layer].device; };
    const int64_t device = device_of(heads.front());
    const auto end = std::ranges::find_if(heads, [&](const auto& head) { return device_of(head) != device; });
    rewrite_on(device, {heads.begin(), end});
    heads = {end, heads.end()};
  }
}

void DeviceCache::rewrite_on(int64_t device, std::span<const RewrittenEntries> heads) {
  std::vector<uint32_t> words;  // 32 bits each: every head's rows and places
  for (const RewrittenEntries& head : heads) {
    for (const float number : head.rows) words.push_back(std::bit_cast<uint32_t>(number));
    for (const int32_t place : head.places) words.push_back(std::bit_cast<uint32_t>(place));
  }
  if (words.empty()) return;
  ++changes_;
  const kernels::CudaDeviceScope here(device);
  kernels::CudaScratch& rewrites = on_devices_.at(device).rewrites;
  const auto* at = static_cast<const uint32_t*>(
      rewrites.upload(words.data(), std::ssize(words) * int64_t{sizeof(uint32_t)}, nullptr));
  std::vector<kernels::RowStore> stores;
  for (const RewrittenEntries& head : heads) {
    const auto* const rows = reinterpret_cast<const float*>(at);
    const auto* const places = reinterpret_cast<const int32_t*>(at += head.rows.size());
    at += head.places.size();
    for (const CellKind kind : {CellKind::keys, CellKind::values}) {
      stores.push_back({.to = cells(head.layer, head.kv_head, kind),
                        .count = std::ssize(head.places),
                        .rows = rows + (kind == CellKind::keys ? 0 : std::ssize(head.rows) / 2),
                        .row_stride = layers_.front().head_dim,
                        .places = places});
    }
  }
  kernels::store_rows_cuda(stores, rewrites, nullptr);
  kernels::cuda_synchronize(nullptr);
}

void DeviceCache::take_newest(const KvCache& host) {
  const int64_t first = length_;
  reserve(host.length);
  length_ = host.length;
  upload(host, first, std::vector<bool>(layers_.size()));
}

/// Whole cells, of which the first may hold some that are there.
void DeviceCache::upload(const KvCache& host, int64_t first, const std::vector<bool>& there) {
  bool any = false;
  for (int64_t layer = 0; layer < std::ssize(layers_); ++layer) {
    if (there[layer]) continue;
    const PlacedLayer& shape = layers_[layer];
    const kernels::CudaDeviceScope here(shape.device);
    const std::vector<AttentionItem> items = run_items(host.layers[layer]);
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t held = std::max<int64_t>(0, first - dropped(layer)[head]) / kernels::kCell * kernels::kCell;
      const int64_t begin = kernels::cell_bytes(held, shape.head_dim, shape.dtype);
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const std::vector<std::byte> bytes = joined(items, shape, head, kind, held, entries(layer, head));
        any = any || !bytes.empty();
        beside(layer).uploads.add(static_cast<char*>(cells(layer, head, kind).data) + begin, bytes.data(), 0,
                                  std::ssize(bytes));
      }
    }
  }
  if (any) finish_uploads();
}

}  // namespace kvarena::device
