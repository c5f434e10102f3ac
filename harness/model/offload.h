#pragma once
// Passes that are computed elsewhere than on the processor.

#include <span>

#include "harness/model/transformer.h"

namespace kvarena {

/// A device that has a model's weights too. Caches are the host's, where methods work on them; the device keeps copies.
/// Which passes it takes, and who attends in them, is decided by each pass alone, so that a request's results depend
/// neither on those of others nor on what is judged beside it.
class Offload {
 public:
  virtual ~Offload() = default;

  [[nodiscard]] virtual bool takes(const SequencePass& pass) const = 0;
  /// Computes passes that it takes and that were checked. Entries, lengths and logits are as after
  /// Transformer::forward(), within rounding; hooks that only look at rows are shown them layer by layer, afterwards,
  /// and after_layer() comes behind the whole pass. Logits are valid until the next call. Throws UserError when the
  /// device refuses; then caches whose attention nobody steers have not changed, and others are of no more use.
  virtual std::span<const float> forward(std::span<const SequencePass> batch) = 0;
};

}  // namespace kvarena
