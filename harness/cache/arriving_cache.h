#pragma once
// Caches whose layers come back one by one from behind the device, while passes are computed.

#include <cstdint>
#include <functional>
#include <span>

#include "harness/cache/layer_cache.h"

namespace kvarena {

/// Hooks of passes over a cache whose layers may still be on their way. A device begins with what has come, and waits
/// for each layer when all before it is under way.
class ArrivingCache {
 public:
  virtual ~ArrivingCache() = default;
  /// Whether the cache's mirror gets the layers as they come (LayerReceiver).
  [[nodiscard]] virtual bool arriving(const KvCache& cache) const = 0;
  /// Waits until a layer is there, on the host too. Throws UserError with what its transfer failed with.
  virtual void arrive(int64_t layer) = 0;
};

/// A mirror that takes the layers of its cache as they come.
class LayerReceiver {
 public:
  virtual ~LayerReceiver() = default;
  /// Takes room for the cache.length entries of each head of a dense cache, none of which is there. False where there
  /// is no room: then nothing is to be received, and the next pass copies the cache whole.
  [[nodiscard]] virtual bool expect(const KvCache& cache) = 0;
  /// Begins to copy all entries of a layer, [kv_heads] cells as an EntrySegment holds them; gives what waits until they
  /// are there, on the same thread. On any, between expect() and the next pass over the cache, which must wait for it.
  virtual std::function<void()> receive(int64_t layer, std::span<const kernels::HeadRun> heads) = 0;
  /// Gives the room back. Nothing may be on its way.
  virtual void release() = 0;
};

}  // namespace kvarena
