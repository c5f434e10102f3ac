#pragma once
// The prompt, once: a full cache, the first logits, and what methods asked to observe.

#include <cstdint>
#include <memory>
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
  std::shared_ptr<const ModelFacts> model;
  double seconds = 0;
};

/// Prompt tokens in one pass, unless said otherwise.
inline constexpr int64_t kPrefillChunk = 512;

/// Runs the prompt through the model in chunks of at most `chunk` tokens, which bounds activation memory. The result
/// does not depend on `chunk`, bit for bit. `facts` says what methods may know of the model (model_facts.h); without it
/// they learn what the weights alone tell. Throws UserError when the prompt is empty or longer than the model's window,
/// or when the window has no room for the extra passes that `needs` asks for. The model must outlive what observed its
/// output projection.
[[nodiscard]] Prefill prefill(Transformer& model, std::span<const int32_t> tokens, const Needs& needs,
                              int64_t chunk = kPrefillChunk, std::shared_ptr<const ModelFacts> facts = nullptr);

}  // namespace kvarena
