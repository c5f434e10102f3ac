#pragma once
// A request's full cache behind the device: it comes back whole for each verification, layer by layer, while others
// compute. Yao et al. 2026, arXiv:2605.17613, sections 3 and 4.2.

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "harness/cache/arriving_cache.h"
#include "harness/engine/session/forwarding_hooks.h"
#include "harness/method/method.h"
#include "harness/model/transformer.h"
#include "harness/storage/cell_store.h"

namespace kvarena {

/// A cache whose entries lie in a tier: `cache` holds none of them, and its ledger counts them.
struct ParkedCache {
  KvCache cache;
  Tier tier = Tier::host;
  std::vector<storage::CellStore> stores;  // [layers]
};

/// Moves a cache's entries to the tier, as OffloadedCache does.
[[nodiscard]] ParkedCache park(KvCache full, const storage::HierarchyPtr& tiers, Tier tier);

/// Between verifications the device holds none of the cache's entries: they lie in the tier's storage, and a reload
/// copies them from there, layer by layer, on the link's thread. Not thread-safe; belongs to one request.
class OffloadedCache {
 public:
  /// Takes the entries of `full`, which must be dense and stay where it is, and waits until the tier has them. Throws
  /// UserError when there is no such tier or the link fails, TierFull.
  OffloadedCache(KvCache& full, const storage::HierarchyPtr& tiers, Tier tier);
  /// Takes `full`, whose entries lie in the stores of a tier already.
  OffloadedCache(KvCache& full, std::vector<storage::CellStore> stores, Tier tier)
      : full_(&full), tier_(tier), stores_(std::move(stores)) {}

  /// Bytes in the tier.
  [[nodiscard]] int64_t offloaded_bytes() const { return full_->ledger->current(tier_); }
  /// Bytes of the device that the cache takes, those included that a reload under way has yet to take.
  [[nodiscard]] int64_t device_bytes() const;

  /// Asks for all layers, the first one first. Where the cache has a copy on a device with room for them, they go on to
  /// it at once, and are there when that has them too.
  void begin_reload();
  /// Whether a copy on the device gets the layers as they come.
  [[nodiscard]] bool received() const { return received_; }
  /// Whether a pass may attend to it: it stays, or has been asked for.
  [[nodiscard]] bool is_coming() const { return stays() || !reloads_.empty(); }
  /// Whether all layers are there, or will never be: nothing would wait any more.
  [[nodiscard]] bool arrived() const { return reloads_.empty() || reloads_.back().done(); }
  void wait() { wait_for(static_cast<int64_t>(reloads_.size()) - 1); }
  /// Waits for one layer. Throws UserError with what its reload failed with.
  void wait_for(int64_t layer);

  /// After a verification: the entries from position `before` on go to the tier, and the device forgets all, unless it
  /// keeps them. Counts what was moved for it both ways.
  void offload(int64_t before, Traffic& traffic);
  /// Lets the cache stay on the device from its next verification on.
  void keep() { kept_ = true; }
  /// Whether it has stayed, so that a verification needs no reload.
  [[nodiscard]] bool stays() const { return unwritten_ != kAll; }
  /// Lets it leave again: at once, unless it is on its way or not there.
  void release(Traffic& traffic);

 private:
  friend ParkedCache park(KvCache full, const storage::HierarchyPtr& tiers, Tier tier);
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  void leave(int64_t before, Traffic& traffic);

  KvCache* full_;  // of the request, and whose ledger counts; layers empty unless they have arrived
  Tier tier_;
  std::vector<storage::CellStore> stores_;  // [layers]
  std::vector<LayerCache> arriving_;        // [layers], what reloads write to; empty while offloaded
  int64_t reserved_ = 0;                    // bytes of the device for these
  bool received_ = false;                   // by a copy on the device, as they come
  bool kept_ = false;                       // on the device between verifications
  int64_t unwritten_ = kAll;                // first position of a kept cache that the tier has yet to get
  std::vector<storage::Transfer> reloads_;  // [layers], empty while offloaded; destroyed before what they write to
};

/// Bytes per second at which reloads of the model's caches come from a tier, also to its device, where it has one: what
/// the link's spec says or, of a real link, the median of some reloads that are timed now.
[[nodiscard]] double reload_rate(Transformer& model, const storage::HierarchyPtr& tiers, Tier tier);

/// Lets a pass over a cache that is being reloaded begin with what has come: no layer takes new entries before its old
/// ones are there, which come while the layers before are computed. Throws UserError with what a reload failed with.
class ReloadHooks final : public ForwardingHooks, public ArrivingCache {
 public:
  explicit ReloadHooks(OffloadedCache& cache) : cache_(&cache) {}

  [[nodiscard]] HookAccess reach() const override { return std::max(HookAccess::rows, ForwardingHooks::reach()); }
  [[nodiscard]] bool arriving(const KvCache& /*cache*/) const override { return cache_->received(); }
  void arrive(int64_t layer) override { cache_->wait_for(layer); }
  void complete(KvCache& cache) override;
  void before_pass(KvCache& cache, std::span<const int32_t> tokens) override;
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override;

 private:
  OffloadedCache* cache_;
};

}  // namespace kvarena
