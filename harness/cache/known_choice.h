#pragma once
// Choices of entries that a method has made before a pass begins.

#include "harness/cache/layer_cache.h"

namespace kvarena {

/// Hooks whose views follow from before_pass() alone: before_attention() may be called before a layer's queries and
/// fresh entries are there, and a device need not wait for it. Also the index of a request, or of its first layer,
/// whose method chooses so.
class KnownChoice {
 public:
  virtual ~KnownChoice() = default;
  /// Whether that holds for the passes of a cache.
  [[nodiscard]] virtual bool known(const KvCache& cache) const = 0;
};

}  // namespace kvarena
