#pragma once
// Requests that give up room of the device while they decode.

#include <cstdint>

#include "harness/method/method.h"

namespace kvarena {

/// The index of a request whose layers leave the device when it has to hold less.
class YieldingIndex {
 public:
  virtual ~YieldingIndex() = default;
  /// Bytes that `own` needs on the device with so many tokens when all that can has left.
  [[nodiscard]] virtual int64_t least_bytes(const KvCache& own, int64_t tokens) const = 0;
  /// Gives up room until `own` takes at most `bytes` on the device also when it has one token more, or can give up no
  /// more.
  virtual void yield(KvCache& own, int64_t bytes, Activity& activity) = 0;
};

}  // namespace kvarena
