#pragma once
// The rows of a prompt on their way through the layers, one layer after the other, wherever these are computed.

#include <cstdint>
#include <functional>
#include <span>

#include "harness/model/qkv_rows.h"

namespace kvarena {

/// Rows that pass a layer at once.
struct RowBlock {
  int64_t layer = 0;
  int64_t first = 0;  // of the stream's rows
  /// [rows] ascending: the entries of the layer's runs that theirs become. A row attends to its own and to what lies
  /// before it.
  std::span<const int32_t> places;
};

/// Here (host_rows.cpp) or on a device. Calls come in the order of recompute(); what one gives is valid until the next.
class RowStream {
 public:
  virtual ~RowStream() = default;

  /// Takes fresh entries to the host's cache: keys and values of the block's rows.
  using Store = std::function<void(const QkvRows& rows)>;
  /// Is shown queries too, and lse [rows, q_heads], once the block's entries are stored.
  using Watch = std::function<void(const QkvRows& rows, const float* lse)>;

  /// Embeddings and rotations of the tokens at `positions`, ascending, of a prompt.
  virtual void load(std::span<const int32_t> prompt, std::span<const int32_t> positions) = 0;
  /// Keys and values of a block, which does not move on. The layer has them from now on, wherever else it is kept than
  /// in the host's cache.
  [[nodiscard]] virtual QkvRows entries(const RowBlock& block) = 0;
  /// A block passes its layer. `watch` may be empty.
  virtual void pass(const RowBlock& block, const Store& store, const Watch& watch) = 0;
  /// From now on only these rows, ascending, are in the stream.
  virtual void keep(std::span<const int32_t> rows) = 0;
  /// Logits of the last row, [vocab_size]; the host's cache is whole by now. Nothing comes behind it.
  [[nodiscard]] virtual std::span<const float> finish() = 0;
};

}  // namespace kvarena
