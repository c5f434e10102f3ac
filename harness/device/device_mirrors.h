#pragma once
// Copies on the device of caches that live on the host.

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "harness/cache/arriving_cache.h"
#include "harness/device/attention_sums.h"
#include "harness/device/device_cache.h"

namespace kvarena::device {

class DeviceMirrors;

/// Tokens that a new copy has room for beyond those that are known to come, so that answers seldom move it.
inline constexpr int64_t kDecodeHeadroom = 256;

/// A cache's copy on the device, as of the last pass that ran there. Lives in KvCache::mirror; when memory is short its
/// entries go and it stays empty.
class DeviceMirror final : public CacheMirror, public LayerReceiver {
 public:
  explicit DeviceMirror(std::shared_ptr<DeviceMirrors> all);
  ~DeviceMirror() override;
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;

  /// The clone's copy is made on the device when it is first asked for, if this one is what it was then; else it comes
  /// from the host.
  [[nodiscard]] std::unique_ptr<CacheMirror> for_clone(const KvCache& from, KvCache& clone) override;
  [[nodiscard]] std::unique_ptr<MirrorScope> scores_scope(KvCache& own) override;
  /// Others that need room leave what is expected alone until the next pass over it.
  [[nodiscard]] bool expect(const KvCache& cache) override;
  std::function<void()> receive(int64_t layer, std::span<const kernels::HeadRun> heads) override;
  void release() override;

 private:
  friend class DeviceMirrors;
  class SegmentCopy;
  /// Takes back on the device what was taken back on the host; false when the host's cache has become another one in
  /// one of its first `visited` layers.
  [[nodiscard]] bool follow(const KvCache& host, int64_t visited);
  /// Drops on the device all that a layer holds, which has nothing left on the host; false where that is not so.
  [[nodiscard]] bool follow_emptied(const LayerCache& host, size_t layer);
  /// Drops on the device what a layer's tail let go; false when that is better copied anew.
  [[nodiscard]] bool follow_drops(const LayerCache& host, size_t layer);
  /// [layers] whose runs are what they were; empty where none can be.
  [[nodiscard]] std::vector<bool> alike(const KvCache& host) const;
  /// Takes over what the host has overwritten since in its first `layers` layers.
  void take_rewritten(const KvCache& host, int64_t layers);
  /// Takes over what it has got elsewhere since, and what it has overwritten in the layers that count.
  void take_new(KvCache& host, int64_t visited);
  /// Positions of the entries that one of the copy's runs holds.
  [[nodiscard]] std::vector<int32_t> positions_of(size_t layer, int64_t kv_head) const;
  /// Where a clone's entries lie already: a mirror that may be gone by now.
  struct Origin {
    const DeviceMirror* mirror = nullptr;
    int64_t id = 0, changes = 0, length = 0;  // of its cache
  };
  [[nodiscard]] bool holds(const Origin& origin) const;
  /// Copy and host are alike now, or are in a layer that got the same.
  void record(KvCache& host);
  void record(KvCache& host, size_t layer);

  /// A layer of the host as it was when the copy was made.
  struct Layer {
    std::vector<uint64_t> versions;               // of its segments
    int64_t newest = 0;                           // entries in its tail
    int64_t tokens = 0;                           // that it had seen: fewer than the cache where passes left before
    int64_t drops = 0;                            // of its tail
    std::vector<std::vector<int32_t>> positions;  // [kv_heads] of what the copy's runs hold, where heads hold their own
  };
  std::shared_ptr<DeviceMirrors> all_;
  /// Has the ledger of the copy's cache count what the copy takes beyond the cache's own bytes, so that both together
  /// are what is taken of the device: the larger of the two.
  void count(const KvCache& host);
  void count(int64_t bytes);
  void drop();

  std::optional<DeviceCache> cache_;
  LedgerPtr ledger_;     // of the cache
  int64_t counted_ = 0;  // bytes there
  std::vector<Layer> layers_;
  std::optional<Origin> origin_;
  bool expects_ = false;
};

/// A cache to which a pass will append so many tokens.
struct GrowingCache {
  KvCache* host = nullptr;
  int64_t tokens = 0;
  bool arriving = false;  // its copy has been expecting it: layers may still be on their way
};

/// All of one model's. The least recently used ones go when there is no room for another. Thread-safe but for the
/// caches themselves, each of which one thread uses at a time.
class DeviceMirrors : public std::enable_shared_from_this<DeviceMirrors> {
 public:
  /// Mirrors of caches with such layers, which take at most `limits` on the layers' devices.
  DeviceMirrors(std::vector<PlacedLayer> layers, DeviceBytes limits);

  /// The device's copies of the caches, up to date in the first `visited` layers and with room for the tokens to come.
  /// They are not given away before the next call.
  [[nodiscard]] std::vector<DeviceCache*> of(std::span<const GrowingCache> caches, int64_t visited);
  /// Whether a copy expects its cache and has room for so many more tokens.
  [[nodiscard]] bool expects(const KvCache& host, int64_t tokens) const;
  /// The device appended to a layer of the copy what the host has got too, and nothing else was done to it yet.
  static void appended(KvCache& host, int64_t layer);

  /// While it lives, a layer's segments have probabilities computed by their copies, which are up to date (a pass was
  /// just appended, or of() has made them so). Only then: what a request gets must not depend on whose copies others
  /// have pushed out.
  class LayerScope final : public MirrorScope {
   public:
    LayerScope(KvCache& host, int64_t layer);
    ~LayerScope() override;
    LayerScope(const LayerScope&) = delete;
    LayerScope& operator=(const LayerScope&) = delete;

   private:
    LayerCache* host_;
    std::vector<std::unique_ptr<EntryMirror>> copies_;
  };

  /// From now on copies take so many bytes less on a device: something else lies there.
  void give_up(int64_t device, int64_t bytes);

  /// AttentionSums::add() over a copy, of all that is listed.
  void add_sums(const DeviceCache& copy, int64_t layer, const LayerQueries& queries, const float* lse,
                std::span<const kernels::QuerySum> sums);

  /// Caches that were copied whole, but for layers that stayed; those that were copied on the device; and copies that
  /// made room for others.
  [[nodiscard]] int64_t uploads() const { return uploads_; }
  [[nodiscard]] int64_t copies() const { return copies_; }
  [[nodiscard]] int64_t evictions() const { return evictions_; }
  /// Bytes of entries that copies received layer by layer.
  [[nodiscard]] int64_t received_bytes() const { return received_bytes_; }
  /// How often copies computed probabilities.
  [[nodiscard]] int64_t lookups() const { return lookups_; }

 private:
  friend class DeviceMirror;
  DeviceMirror& mirror_of(KvCache& host);
  /// Drops others' copies until a cache of so many tokens fits beside the `needed` ones; whether it does.
  bool make_room(int64_t tokens, std::span<DeviceMirror* const> needed);
  /// Makes a clone's copy from where its entries lie, if they still do.
  void copy_origin(DeviceMirror& mirror, int64_t capacity, std::vector<DeviceMirror*> needed);
  /// Makes a copy anew, with room for so many tokens at least.
  void renew(DeviceMirror& mirror, KvCache& host, int64_t tokens, int64_t visited,
             std::span<DeviceMirror* const> needed);
  [[nodiscard]] bool has_room(int64_t tokens) const;
  /// A spare for so many tokens, if there is one that is not much larger.
  [[nodiscard]] std::optional<DeviceCache> take_spare(int64_t tokens);

  std::vector<PlacedLayer> shapes_;
  DeviceBytes limits_;
  int64_t uploads_ = 0, copies_ = 0, evictions_ = 0, lookups_ = 0;
  std::atomic<int64_t> received_bytes_ = 0;
  std::map<int64_t, kernels::CudaQueue> bus_;  // by device, of what copies receive
  std::map<int64_t, AttentionSums> sums_;      // by device
  mutable std::mutex mutex_;
  std::list<DeviceMirror*> used_;  // least recently used first
  std::list<DeviceCache> spare_;   // of caches that left, for those that come: freeing memory waits for all streams
};

}  // namespace kvarena::device
