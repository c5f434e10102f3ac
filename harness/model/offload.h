#pragma once
// Interface of a device that computes a model's passes.

#include <memory>
#include <span>

#include "harness/model/row_stream.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// A device that has a model's weights too. Caches are the host's, where methods work on them; the device keeps copies.
/// Whether host or device attends in a pass is decided by that pass alone, so that a request's results do not depend on
/// other requests.
class Offload {
 public:
  virtual ~Offload() = default;

  /// Computes passes that were checked and that leave behind one layer, or all behind the last. Entries, lengths and
  /// logits are as after Transformer::forward(), within rounding; hooks that only look at rows are shown
  /// a layer when it has been computed, while the device goes on. Logits are valid until the next call. Throws
  /// UserError when the device refuses; then caches of passes without hooks have not changed, and others are of no more
  /// use.
  virtual std::span<const float> forward(std::span<const SequencePass> batch) = 0;
  /// The rows of a prompt of so many tokens, whose entries `cache` takes: dense, an entry at each position before its
  /// length. `by_layer`, of an empty cache: the device keeps no layer once all rows have passed it, and so holds one at
  /// a time. No pass may run meanwhile. Throws UserError, as the rows do, when the device refuses.
  [[nodiscard]] virtual std::unique_ptr<RowStream> rows_of(KvCache& cache, int64_t tokens, bool by_layer) = 0;
  /// Brings the device's copy of a cache up to date, with room for so many more tokens: on any thread, beside passes
  /// over other caches, whose copies stay where they are. Does nothing where there is no room beside these. Throws
  /// UserError when the device refuses.
  virtual void upload(KvCache& cache, int64_t tokens) = 0;
  /// Keys that are searched on the last layer's device, whose memory they and copies of caches share; none yet. They
  /// throw UserError when the device refuses.
  [[nodiscard]] virtual std::unique_ptr<SearchedKeys> searched_keys(int64_t kv_heads, int64_t head_dim,
                                                                    const LedgerPtr& ledger) = 0;
  /// Another model on the device of this one's last layer, whose caches give up the room that it takes. Throws
  /// UserError when it does not fit.
  [[nodiscard]] virtual std::unique_ptr<Offload> beside(const ModelConfig& config, const Checkpoint& checkpoint,
                                                        const TransformerOptions& options) = 0;
};

}  // namespace kvarena
