#pragma once
// Layers of a request whose entries lie behind the device, but for attended ones, which have slots on it. Xu et al.
// 2025, arXiv:2512.00722, sections 5.4 and 6.

#include <vector>

#include "harness/method/budget.h"
#include "harness/method/method.h"
#include "harness/storage/slot_cache.h"

namespace kvarena {

/// Slots of an offloaded layer, null for one on the device.
[[nodiscard]] storage::SlotCache* slots_of(const LayerCache& layer);
/// Sends entries that joined an offloaded layer after the others.
void follow(LayerCache& layer, Activity& activity);

struct OffloadedLayers {
  storage::HierarchyPtr tiers;
  storage::SlotCache::Options slots;
  Budget budget;             // of attended entries, by the tokens so far
  int64_t lists = 1;         // of attended entries, that a kv head has
  std::vector<bool> leaves;  // [layers], which ones may

  /// Sends a layer away, unless it has left or may not.
  void send(KvCache& own, int64_t layer, Activity& activity) const;
  /// Sends layers away, the last one first, until bytes() is at most `most`: Algorithm 2, by what caches take here in
  /// place of lengths that Algorithm 1 finds beforehand.
  void send_until(KvCache& own, int64_t most, int64_t tokens, int64_t beside, Activity& activity) const;

  /// Bytes on the device of a cache of so many tokens, `beside` those of its index; Eq. 7 by stored forms. Layers that
  /// stay hold whole cells; others slots for the attended entries, and as many that arrive. A layer that leaves, or
  /// whose slots are put in order, lies there twice for the time.
  [[nodiscard]] int64_t bytes(const KvCache& own, int64_t tokens, int64_t beside) const;
  /// Counts alike when all layers that may have left.
  [[nodiscard]] int64_t least_bytes(const KvCache& own, int64_t tokens, int64_t beside) const;

 private:
  [[nodiscard]] int64_t bytes_with(const KvCache& own, const std::vector<bool>& away, int64_t tokens) const;
};

}  // namespace kvarena
