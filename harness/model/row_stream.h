#pragma once
// The rows of a prompt on their way through the layers, one layer after the other, on host or device.

#include <cstdint>
#include <functional>
#include <span>

#include "harness/model/qkv_rows.h"

namespace kvarena {

/// Rows that pass a layer at once.
struct RowBlock {
  int64_t layer = 0;
  int64_t first = 0;  // index among the stream's rows
  /// [rows] ascending: places of the rows' entries in the layer's runs. A row attends to its own entry and those
  /// before.
  std::span<const int32_t> places;
};

/// Implemented by the host (host_rows.cpp) and by a device. Calls come in the order of recompute(); the result of a
/// call is valid until the next.
class RowStream {
 public:
  virtual ~RowStream() = default;

  /// Takes fresh entries to the host's cache: keys and values of the block's rows.
  using Store = std::function<void(const QkvRows& rows)>;
  /// Observes queries, keys and values, and lse [rows, q_heads], once the block's entries are stored.
  using Watch = std::function<void(const QkvRows& rows, const float* lse)>;

  /// Starts the stream with tokens at `positions`, ascending, of the prompt: their embeddings and rotations.
  virtual void load(std::span<const int32_t> tokens, std::span<const int32_t> positions) = 0;
  /// Keys and values of a block, which stays in its layer. A device stores them in its copy of the layer's cache.
  [[nodiscard]] virtual QkvRows entries(const RowBlock& block) = 0;
  /// Takes a block through its layer. `watch` may be empty.
  virtual void pass(const RowBlock& block, const Store& store, const Watch& watch) = 0;
  /// Removes all rows but these, ascending, from the stream.
  virtual void keep(std::span<const int32_t> rows) = 0;
  /// Logits of the last row, [vocab_size]; the host's cache is complete by now. The last call.
  [[nodiscard]] virtual std::span<const float> finish() = 0;
};

}  // namespace kvarena
