#include "harness/method/offloaded_layers.h"

#include <algorithm>

#include "kernels/cells/cells.h"

namespace kvarena {
namespace {

/// Keys and values of so many entries a head, with the room that an EntrySegment keeps to grow.
int64_t cells_bytes(const LayerShape& shape, int64_t entries) {
  const int64_t needed = kernels::cells_for(entries);
  return 2 * shape.kv_heads * (needed + needed / 64) * kernels::cell_bytes(kernels::kCell, shape.head_dim, shape.dtype);
}

/// Counts entries that were picked: keys and values, their positions in slots old and new, and in the list that
/// attention reads.
int64_t picked_bytes(const LayerShape& shape, int64_t entries) {
  return cells_bytes(shape, entries) + 3 * shape.kv_heads * entries * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace

storage::SlotCache* slots_of(const LayerCache& layer) { return static_cast<storage::SlotCache*>(layer.index.get()); }

void follow(LayerCache& layer, Activity& activity) {
  storage::SlotCache& slots = *slots_of(layer);
  const int64_t sent = slots.offloaded_bytes();
  slots.offload(layer.tail());
  activity.traffic.offloaded_bytes += slots.offloaded_bytes() - sent;
}

void OffloadedLayers::send(KvCache& own, int64_t layer, Activity& activity) const {
  LayerCache& leaving = own.layers[static_cast<size_t>(layer)];
  if (leaving.index || !leaves[static_cast<size_t>(layer)]) return;
  leaving.index = std::make_unique<storage::SlotCache>(leaving.shape(), own.ledger, tiers, slots);
  follow(leaving, activity);
}

void OffloadedLayers::send_until(KvCache& own, int64_t most, int64_t tokens, int64_t beside, Activity& activity) const {
  for (int64_t layer = std::ssize(own.layers) - 1; layer >= 0 && bytes(own, tokens, beside) > most; --layer) {
    send(own, layer, activity);
    if (auto* const left = slots_of(own.layers[static_cast<size_t>(layer)])) left->settle();
  }
}

int64_t OffloadedLayers::bytes_with(const KvCache& own, const std::vector<bool>& away, int64_t tokens) const {
  const LayerShape& first = own.layers.front().shape();
  const int64_t attended = lists * budget.capacity(tokens, first, std::ssize(own.layers));
  int64_t total = 0, twice = 0;
  for (size_t layer = 0; layer < own.layers.size(); ++layer) {
    const LayerShape& shape = own.layers[layer].shape();
    if (away[layer]) {
      const int64_t held = 2 * picked_bytes(shape, std::min(tokens, attended));
      total += held;
      twice = std::max(twice, held);
    } else {
      const int64_t held = cells_bytes(shape, tokens);
      total += held;
      if (leaves[layer]) twice = std::max(twice, held);
    }
  }
  return total + twice;
}

int64_t OffloadedLayers::bytes(const KvCache& own, int64_t tokens, int64_t beside) const {
  std::vector<bool> away;
  for (const LayerCache& layer : own.layers) away.push_back(layer.index != nullptr);
  return bytes_with(own, away, tokens) + beside;
}

int64_t OffloadedLayers::least_bytes(const KvCache& own, int64_t tokens, int64_t beside) const {
  return bytes_with(own, leaves, tokens) + beside;
}

}  // namespace kvarena
