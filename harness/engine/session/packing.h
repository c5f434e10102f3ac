#pragma once
// Codecs on a prompt's cache: bits of a number, errors of what comes back, time of packing, unpacking and attending.

#include <cstdint>

#include "harness/engine/session/prefill.h"
#include "harness/method/method.h"

namespace kvarena {

/// Whether `method` stores entries in a form of its own, for attention or at rest.
[[nodiscard]] bool is_codec(const Method& method);

/// Numbers of keys and values that codecs hold, and the bytes of all that these need: codes, scales, tables, outliers.
/// Numbers that a codec still holds in 16 bits count on neither side.
struct PackedSize {
  int64_t numbers = 0;
  int64_t bytes = 0;
  bool simulated = false;  // some bytes are computed, for nothing is packed
  [[nodiscard]] double bits_per_number() const {
    return numbers > 0 ? 8 * static_cast<double>(bytes) / static_cast<double>(numbers) : 0;
  }
};

/// Adds up the segments of all layers.
[[nodiscard]] PackedSize packed_size(const KvCache& cache);

struct Packing {
  PackedSize size;
  double key_error = 0;       // sum of (decoded - exact)^2 over sum of exact^2, all layers and heads of what was packed
  double value_error = 0;     // likewise
  double encode_seconds = 0;  // from the cache's own type to packed; the fastest of the repeats
  double decode_seconds = 0;  // from packed to float32 rows; of a stream, to a cache in its own type
  /// A token's queries attending to the packed cache in all layers, and to the full one in turns with that; 0 of a
  /// stream, which is decoded first.
  double attend_seconds = 0;
  double full_attend_seconds = 0;
};

/// Packs the prompt's cache `repeats` times and attends to it more often, on as many threads as there are. Throws
/// UserError for a method that packs nothing of this prompt, and when the prompt was observed without what the method
/// needs.
[[nodiscard]] Packing measure_packing(const Transformer& model, const Prefill& prompt, const Method& method,
                                      int64_t repeats);

}  // namespace kvarena
