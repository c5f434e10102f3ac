#pragma once
// Copies on the device of caches that live on the host.

#include <atomic>
#include <condition_variable>
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

/// Copies that others leave alone while this lives: a running pass attends to them, or one of them is being made.
class HeldCopies {
 public:
  HeldCopies(HeldCopies&&) = default;
  HeldCopies& operator=(HeldCopies&&) = delete;
  ~HeldCopies();
  [[nodiscard]] DeviceCache* operator[](size_t i) const { return copies_[i].get(); }
  [[nodiscard]] DeviceCache* front() const { return copies_.front().get(); }

 private:
  friend class DeviceMirrors;
  HeldCopies(std::shared_ptr<DeviceMirrors> all, size_t count);

  std::shared_ptr<DeviceMirrors> all_;
  std::vector<std::shared_ptr<DeviceCache>> copies_;
};

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
  /// Has the ledger of the copy's cache count what the copy takes beyond the cache's own bytes and those that are
  /// `coming`, so that both together are what is taken of the device: the larger of the two.
  void count(const KvCache& host, int64_t coming = 0);
  void count(int64_t bytes);
  // Under the lock of all mirrors:
  /// Gives the copy up, which is to be freed.
  [[nodiscard]] std::shared_ptr<DeviceCache> drop();
  /// Whether the copy may go: nobody holds it, and no layer is on its way to it.
  [[nodiscard]] bool idle() const { return cache_ && cache_.use_count() == 1 && !expects_; }
  /// Bytes that the copy takes, or will take when it has been made.
  [[nodiscard]] const DeviceBytes& taken();

  std::shared_ptr<DeviceCache> cache_;  // shared with HeldCopies; set and released under the lock of all mirrors
  DeviceBytes taken_;                   // of what others hold or make; under the same lock
  LedgerPtr ledger_;                    // of the cache
  int64_t counted_ = 0;                 // bytes there
  std::vector<Layer> layers_;
  std::optional<Origin> origin_;
  std::atomic<bool> expects_ = false;
};

/// A cache to which a pass will append so many tokens.
struct GrowingCache {
  KvCache* host = nullptr;
  int64_t tokens = 0;
  bool arriving = false;  // its copy has been expecting it: layers may still be on their way
};

/// All of one model's. The least recently used ones go when there is no room for another, but for those that somebody
/// holds. Room is reserved before it is taken. Thread-safe but for the caches themselves, each of which one thread uses
/// at a time.
class DeviceMirrors : public std::enable_shared_from_this<DeviceMirrors> {
 public:
  /// Mirrors of caches with such layers, which take at most `limits` on the layers' devices.
  DeviceMirrors(std::vector<PlacedLayer> layers, DeviceBytes limits);

  /// The device's copies of the caches, up to date in the first `visited` layers and with room for the tokens to come.
  [[nodiscard]] HeldCopies of(std::span<const GrowingCache> caches, int64_t visited);
  /// Room for a prompt of so many tokens that is read layer by layer into an empty cache: a layer on each device, which
  /// the device's layers take turns with. No pass can use it: the cache's mirror has to be reset before one.
  [[nodiscard]] HeldCopies of_layers(KvCache& host, int64_t tokens);
  /// Brings a cache's copy up to date ahead of a pass over `tokens` more, on any thread and beside passes over others.
  /// Does nothing where no copy can hold it or there is no room beside the copies that others hold: the pass brings it.
  void upload(KvCache& host, int64_t tokens);
  /// Whether a copy expects its cache and has room for so many more tokens.
  [[nodiscard]] bool expects(const KvCache& host, int64_t tokens) const;
  /// The host is about to get `bytes` of entries that the copy has room for, which count once.
  static void appending(KvCache& host, int64_t bytes);
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

  /// From now on copies take so many bytes less on a device, more where negative: something else lies there. Those that
  /// nobody holds go until the others take no more.
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
  friend class HeldCopies;
  using Copy = std::shared_ptr<DeviceCache>;
  enum class When : uint8_t {
    now,    // a pass waits for it: room that uploads ahead hold is waited for, and a device that is too small refuses
    ahead,  // it may fail
  };
  /// In the end the mirror's copy takes what it takes.
  struct Settling {
    ~Settling();
    DeviceMirrors* all;
    DeviceMirror* mirror;
  };

  /// The cache's mirror, now the most recently used one; `held` is its copy, if it has one.
  DeviceMirror& mirror_of(KvCache& host, Copy& held);
  /// Brings one copy up to date; false where there was no room ahead.
  bool bring(DeviceMirror& mirror, const GrowingCache& grown, int64_t visited, When when, Copy& held);
  /// Makes a clone's copy from where its entries lie, if they still do.
  void copy_origin(DeviceMirror& mirror, int64_t capacity, Copy& held);
  /// Makes a copy anew, with room for so many tokens at least; false where there was no room ahead.
  bool renew(DeviceMirror& mirror, const GrowingCache& grown, int64_t visited, When when, Copy& held);
  void put(DeviceMirror& mirror, DeviceCache made, Copy& held);
  /// Reserves room for so many tokens of a copy's layers, in place of what it takes or beside that. Others' copies go
  /// until there is enough; none does ahead where that would be in vain. Whether there is.
  bool reserve(DeviceMirror& mirror, std::span<const PlacedLayer> layers, int64_t tokens, bool beside, When when);
  /// Under the lock, which others may take meanwhile: copies go until all fits once `mirror` takes so much, or none may
  /// go. None does ahead where that would be in vain: false.
  bool make_room(const DeviceMirror* mirror, const DeviceBytes& taken, When when, std::unique_lock<std::mutex>& lock);
  /// Under the lock, which others may take meanwhile: frees a copy that nobody holds. It counts until it is gone.
  void free(Copy gone, std::unique_lock<std::mutex>& lock);
  /// Under the lock: whether all fits once `mirror`, null for none, takes so much, or would if all copies went that
  /// may.
  [[nodiscard]] bool fits(const DeviceMirror* mirror, DeviceBytes taken, bool alone) const;
  /// A spare for so many tokens that becomes a mirror's copy, if there is one that is not much larger.
  [[nodiscard]] std::optional<DeviceCache> take_spare(DeviceMirror& mirror, int64_t tokens);

  std::vector<PlacedLayer> shapes_;
  DeviceBytes limits_;
  std::atomic<int64_t> uploads_ = 0, copies_ = 0, evictions_ = 0, lookups_ = 0, received_bytes_ = 0;
  std::mutex summing_;
  std::map<int64_t, AttentionSums> sums_;  // by device; used under this lock
  mutable std::mutex mutex_;               // of what follows, and of all mirrors' room
  int64_t ahead_ = 0;                      // uploads under way
  std::list<DeviceBytes> going_;           // of copies that are being freed
  std::condition_variable settled_;        // one less of either
  std::list<DeviceMirror*> used_;          // least recently used first
  std::list<Copy> spare_;  // of caches that left, for those that come: freeing memory waits for all streams
};

/// Bytes of a device that its mirrors leave to something else while this lives.
class LentRoom {
 public:
  LentRoom(std::shared_ptr<DeviceMirrors> mirrors, int64_t device, int64_t bytes)
      : mirrors_(std::move(mirrors)), device_(device), bytes_(bytes) {
    mirrors_->give_up(device_, bytes_);
  }
  ~LentRoom() { mirrors_->give_up(device_, -bytes_); }
  LentRoom(const LentRoom&) = delete;
  LentRoom& operator=(const LentRoom&) = delete;

 private:
  std::shared_ptr<DeviceMirrors> mirrors_;
  int64_t device_, bytes_;
};

}  // namespace kvarena::device
