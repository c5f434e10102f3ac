#pragma once
// One sequence's cache for passes on a device: every entry of every layer, on the device or in pinned host memory.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/device/device_segment.h"
#include "harness/device/device_slots.h"
#include "kernels/attention/attention.h"
#include "kernels/cells/cells_cuda.h"

namespace kvarena::device {

enum class Placement : uint8_t {
  device,
  /// Pinned memory of the host. What a layer attends to comes over the bus while the layer before computes: all of it,
  /// or what the pass was told to attend to.
  host,
};

/// A layer's entries and the device that they belong to. A model's layers on one device follow each other.
struct PlacedLayer : LayerShape {
  int64_t device = 0;
};

/// Bytes on each of several devices, by their numbers.
using DeviceBytes = std::map<int64_t, int64_t>;

/// Memory on the calling thread's device or pinned.
class PlacedMemory {
 public:
  PlacedMemory() = default;
  PlacedMemory(Placement placement, int64_t bytes);
  [[nodiscard]] char* data() const;

 private:
  kernels::CudaBuffer device_;
  std::unique_ptr<kernels::PinnedBuffer> pinned_;
};

/// Entries of one head's run that get other keys and values.
struct RewrittenEntries {
  int64_t layer = 0, kv_head = 0;
  std::vector<int32_t> places;  // in the run, no two the same
  std::vector<float> rows;      // [2, places, head_dim]: keys, then values
};

struct RecycledCache;

/// The entries of each layer and kv head, one for every token unless some were dropped before the cache came to the
/// device. Those that came packed stay so, in front of a run of the others, which takes what is new. Keys lie in cells,
/// in host memory entry by entry, so that single entries are single pieces on the bus. Each layer is on its own device.
/// Used by one DeviceModel at a time; not thread-safe.
class DeviceCache {
 public:
  /// Room for `entries` of each head from the start.
  DeviceCache(std::vector<PlacedLayer> layers, Placement placement, int64_t entries = 0);
  [[nodiscard]] const PlacedLayer& shape(int64_t layer) const { return layers_[layer]; }
  /// [kv_heads]: everything that queries of a layer may attend to and that is not packed, of a cache on the device;
  /// where entries were dropped, kept() lists those that are left.
  [[nodiscard]] std::vector<kernels::HeadRun> runs(int64_t layer) const;
  /// Packed entries of a layer, oldest first.
  [[nodiscard]] std::span<const DeviceSegment> fronts(int64_t layer) const { return fronts_[layer]; }
  /// Why a cache of such layers on the device, of which the first `visited` will be attended to, cannot hold what
  /// `host` holds, in words; empty when it can.
  [[nodiscard]] static std::string cannot_hold(std::span<const PlacedLayer> layers, const KvCache& host,
                                               int64_t visited);
  /// [kv_heads] entries of a layer of the host's that are held in its runs.
  [[nodiscard]] static std::vector<int64_t> entries_in_runs(const LayerCache& host);
  /// On the device, what `host` holds, with room for `tokens` more: every entry, or what a method left, each head its
  /// own, or what a codec packed. Bits are unchanged. What `former` holds of the same is taken over. Throws UserError
  /// where it cannot.
  DeviceCache(std::vector<PlacedLayer> layers, const KvCache& host, int64_t tokens, RecycledCache former,
              int64_t visited);
  /// Makes an empty cache on the device a full one of `entries` tokens, zeros until receive() has brought all layers.
  void expect(int64_t entries);
  /// Queues the upload of all entries [kv_heads] of a layer that expect() has made, cells as an EntrySegment holds
  /// them, on the default stream; returns their bytes.
  int64_t receive(int64_t layer, std::span<const kernels::HeadRun> heads);
  /// Takes over what the host's packed segments have got since they came here.
  void follow_packed(const KvCache& host);
  /// Rewrites entries of a cache on the device.
  void rewrite(std::span<const RewrittenEntries> heads);
  /// Takes over the entries that the host's heads have got behind those that both hold.
  void take_newest(const KvCache& host);
  DeviceCache(DeviceCache&&) = default;
  DeviceCache& operator=(DeviceCache&&) = default;

  [[nodiscard]] Placement placement() const { return placement_; }
  /// Tokens whose entries were appended = position of the next token.
  [[nodiscard]] int64_t length() const { return length_; }
  /// Tokens that there is room for.
  [[nodiscard]] int64_t capacity() const { return capacity_; }
  /// Tokens that a new cache has room for when it is asked for so many, and this one once it has room for them: half as
  /// much again at least where it must grow, so that what is there moves seldom.
  [[nodiscard]] static constexpr int64_t rounded(int64_t tokens) { return (tokens + kBlock - 1) / kBlock * kBlock; }
  [[nodiscard]] int64_t capacity_for(int64_t tokens) const;
  /// Entries of a head's run, dropped ones included.
  [[nodiscard]] int64_t entries(int64_t layer, int64_t kv_head) const { return length_ - dropped(layer)[kv_head]; }
  /// From now on only these entries of the heads' runs are there, [kv_heads] ascending, and those that come behind. The
  /// others' memory stays.
  void keep(int64_t layer, std::vector<std::vector<int32_t>> entries);
  /// [kv_heads] entries of the runs that are left; empty where all are there.
  [[nodiscard]] std::span<const std::vector<int32_t>> kept(int64_t layer) const { return kept_[layer]; }
  [[nodiscard]] bool any_dropped() const {
    return std::ranges::any_of(kept_, [](const auto& heads) { return !heads.empty(); });
  }
  /// Entries of a head's run that are left.
  [[nodiscard]] int64_t held(int64_t layer, int64_t kv_head) const {
    return kept_[layer].empty() ? entries(layer, kv_head) : std::ssize(kept_[layer][kv_head]);
  }
  /// Whether every token has its entry in the runs of all layers and heads.
  [[nodiscard]] bool full() const { return first_kept_ == 0 && !any_dropped(); }
  /// Bytes of entries' memory; in host placement of pinned memory, beside device_bytes() of what lies on the device
  /// too.
  [[nodiscard]] int64_t bytes() const;
  [[nodiscard]] int64_t device_bytes() const;
  /// bytes() by the devices of layers.
  [[nodiscard]] DeviceBytes bytes_by_device() const;
  /// Makes an empty cache one of `entries` tokens whose keys and values are 0: for measuring.
  void fill(int64_t entries);
  /// The first `length` tokens of a full cache on the device in another one, with room for so many.
  [[nodiscard]] DeviceCache copy(int64_t length, int64_t capacity) const;
  /// A number of this cache alone, and how often entries that it holds have been changed or taken back: as long as both
  /// stay, so do the entries that were there.
  [[nodiscard]] int64_t id() const { return id_; }
  [[nodiscard]] int64_t changes() const { return changes_; }
  /// Forgets the entries from position `length` on; where some were dropped or packed, none of those that came from the
  /// host, unless the first ones alone were.
  void truncate(int64_t length);
  [[nodiscard]] bool may_truncate(int64_t length) const { return length >= first_kept_ && length <= length_; }
  /// Tokens of the prompt when they are known before its first pass, else 0 (dynamic rope scaling).
  int64_t prompt_length = 0;

  /// Entries that came over the bus in the last pass, over all layers and heads, and their bytes.
  [[nodiscard]] int64_t fetched_entries() const { return fetched_entries_; }
  [[nodiscard]] int64_t fetched_bytes() const;

 private:
  friend class DeviceModel;
  /// A layer's entries on the device in host placement.
  struct Window {
    kernels::CudaBuffer memory;  // [kv_heads][keys, values][room]
  };

  /// Holds what layers of one device share.
  struct OnDevice {
    DequantShared shared;  // by fronts_
    UploadBatch uploads;
    kernels::CudaScratch rewrites;
    /// Windows of host placement. When chosen, one for each of the device's layers at the layer's place and a spare at
    /// the end; two that layers share otherwise.
    std::vector<Window> windows;
    std::map<int64_t, DeviceSlots> slots;  // by layer
    SlotMemory spare;                      // that they take turns with
  };

  /// Downloads what the host's heads hold from token `first` on, of length() tokens, but of layers that have it.
  void upload(const KvCache& host, int64_t first, const std::vector<bool>& there);
  /// Takes over the fronts and, where they are alike, the runs of another cache of the same length.
  void take_over(RecycledCache former);
  /// Gives slots to what a layer attends to beside its runs (DeviceSlots).
  void take(int64_t layer, std::span<ExtraRuns> extras, SlotUpdates& updates) {
    OnDevice& own = beside(layer);
    own.slots[layer].take(extras, layers_[layer], length_, own.spare, updates);
  }
  static constexpr int64_t kBlock = 256;  // tokens, of capacities
  /// Room for so many tokens. Nothing may be under way that uses the cache where it grows.
  void reserve(int64_t tokens);
  [[nodiscard]] OnDevice& beside(int64_t layer) { return on_devices_.at(layers_[layer].device); }
  /// Waits for all uploads.
  void finish_uploads();
  void rewrite_on(int64_t device, std::span<const RewrittenEntries> heads);
  [[nodiscard]] int64_t head_bytes(int64_t room) const;  // of its keys, or of its values
  /// [kv_heads] tokens that have no entry in the run of a layer's heads: dropped ones and packed ones.
  [[nodiscard]] std::span<const int64_t> dropped(int64_t layer) const;
  /// Where a head's memory begins in its layer's when there is room for `tokens`; of head kv_heads, where all ends.
  [[nodiscard]] int64_t first_byte(int64_t layer, int64_t head, int64_t tokens) const;
  [[nodiscard]] kernels::Cells cells(int64_t layer, int64_t head, kernels::CellKind kind) const;
  [[nodiscard]] kernels::Cells cells(const Window& window, int64_t head, kernels::CellKind kind) const;

  /// Prepares the pass to come, which attends to positions [kv_heads] ascending (null: to all) and to `fresh` tokens
  /// behind them: fills counts_ and lists_.
  void choose(const std::vector<std::vector<int32_t>>* positions, int64_t fresh);
  void find_in_windows(const std::vector<std::vector<int32_t>>& positions);
  void make_windows(int64_t room);
  /// Where layer `layer` is attended in this pass.
  [[nodiscard]] Window& window(int64_t layer);
  /// The window that takes the place of a chosen layer's.
  [[nodiscard]] Window& spare(int64_t layer) { return beside(layer).windows.back(); }
  /// The pass is over: `fresh` more tokens have entries.
  void advance(int64_t fresh);

  std::vector<PlacedLayer> layers_;
  Placement placement_;
  int64_t id_;  // of this cache alone
  int64_t changes_ = 0;
  int64_t moves_ = 0;  // how often entries have got other addresses, or packed ones have changed
  int64_t length_ = 0, capacity_ = 0;
  std::vector<int64_t> dropped_;                         // [layers, kv_heads]
  std::vector<std::vector<std::vector<int32_t>>> kept_;  // [layers][kv_heads], see keep(); empty where all are there
  int64_t first_kept_ = 0;                               // every token from this one on is in the runs
  std::vector<PlacedMemory> memory_;                     // [layers]: [kv_heads][keys, values][capacity - dropped]
  std::vector<std::vector<DeviceSegment>> fronts_;       // [layers], oldest first
  std::map<int64_t, OnDevice> on_devices_;               // by number, of all layers' devices

  // State of the pass to come.
  bool chosen_ = false;
  std::vector<int64_t> counts_;  // [kv_heads] entries before the fresh ones
  std::vector<std::vector<int32_t>>
      lists_;  // [kv_heads]: an index (device), or sources as EntryMerge takes them (host)

  // Host placement.
  int64_t room_ = 0;                        // entries of a head that a window takes; 0: there is none
  std::vector<std::vector<int32_t>> held_;  // [kv_heads] positions that every layer's window holds, in its order
  int64_t fetched_entries_ = 0;
};

/// A cache that another one takes the place of: what both hold need not go up again.
struct RecycledCache {
  std::optional<DeviceCache> cache;
  /// [layers]: the host has changed nothing of the runs since, and there is room behind them; empty: of none.
  std::vector<bool> alike;
};

}  // namespace kvarena::device
