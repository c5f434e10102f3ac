#pragma once
// State of a request that reads what the model computes of its tokens.

#include <cstdint>

namespace kvarena {

/// The index of a request whose method reads the residual stream while it decodes, for the next pass.
class ResidualReader {
 public:
  virtual ~ResidualReader() = default;
  /// After a layer of a pass: rows [count, hidden_size] of its tokens. On a device behind the whole pass.
  virtual void see_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) = 0;
};

}  // namespace kvarena
