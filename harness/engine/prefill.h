#pragma once
// The prompt, once: a full cache, the first logits, and what methods asked to observe.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/method/method.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// A prompt's full prefill. Methods start from clones of its cache, so that judging one more method costs its decoding
/// alone.
struct Prefill {
  std::vector<int32_t> tokens;
  KvCache cache;
  std::vector<float> logits;                    // [vocab_size], of the first new token
  std::vector<LayerObservations> observations;  // [layers]
  double seconds = 0;
};

/// Runs the prompt through the model in chunks of at most `chunk` tokens, which bounds activation memory. The result
/// does not depend on `chunk`, bit for bit. Throws UserError when the prompt is empty or longer than the model's
/// window. The model must outlive what observed its output projection.
[[nodiscard]] Prefill prefill(Transformer& model, std::span<const int32_t> tokens, const Needs& needs,
                              int64_t chunk = 512);

}  // namespace kvarena
