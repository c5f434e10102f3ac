// Probabilities and sums of attention that copies on the device compute of their caches.

#include <utility>

#include "harness/cache/attend_plan.h"
#include "harness/device/device_errors.h"
#include "harness/device/device_mirrors.h"

namespace kvarena::device {

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
    const std::scoped_lock lock(all_->summing_);
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

std::unique_ptr<MirrorScope> DeviceMirror::scores_scope(KvCache& own) {
  /// Scopes of all layers.
  struct Lookups final : MirrorScope {
    explicit Lookups(HeldCopies copies) : held(std::move(copies)) {}
    HeldCopies held;
    std::vector<std::unique_ptr<DeviceMirrors::LayerScope>> layers;
  };
  const int64_t layers = std::ssize(own.layers);
  if (!DeviceCache::cannot_hold(all_->shapes_, own, layers).empty()) return nullptr;
  const GrowingCache grown[] = {{.host = &own}};
  auto made = std::make_unique<Lookups>(on_device([&] { return all_->of(grown, layers); },
                                                  [&] {
                                                    std::unique_lock lock(all_->mutex_);
                                                    all_->free(drop(), lock);
                                                  }));
  for (int64_t layer = 0; layer < layers; ++layer)
    made->layers.push_back(std::make_unique<DeviceMirrors::LayerScope>(own, layer));
  return made;
}

void DeviceMirrors::add_sums(const DeviceCache& copy, int64_t layer, const LayerQueries& queries, const float* lse,
                             std::span<const kernels::QuerySum> sums) {
  const std::scoped_lock lock(summing_);
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
