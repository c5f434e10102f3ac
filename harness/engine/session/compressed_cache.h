#pragma once
// A prompt's cache as a method leaves it.

#include <map>
#include <optional>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/method/method.h"

namespace kvarena {

/// The layers of a cache as a method is handed them at the end of a prompt of so many tokens.
[[nodiscard]] std::vector<LayerContext> contexts_of(KvCache& cache, int64_t prompt_tokens, const ModelFacts* model,
                                                    Activity& activity);
/// Layers as above, of a prompt that is at hand.
[[nodiscard]] std::vector<LayerContext> contexts_of(KvCache& cache, const Prefill& prompt, Activity& activity);

/// Removes the newest `count` entries of every head.
void drop_newest(LayerCache& layer, int64_t count);

/// Where decoding starts.
struct PromptState {
  KvCache cache;
  std::vector<float> logits;         // [vocab_size], of the first new token
  std::optional<ReuseRecord> reuse;  // of methods that reuse entries
  double seconds =
      0;  // from the full cache, a primed memory, or the tokens of a prompt read in an own way to this state
};

/// States that methods made of one prompt. Sessions of a prompt that has one begin with copies: each method compresses
/// once, whatever is asked afterwards. The methods must outlive it.
class CompressedPrompts {
 public:
  struct Kept {
    PromptState state;
    Activity activity;  // of compressing
  };
  std::map<const Method*, Kept> by_method;
};

/// A clone of the prompt's cache, compressed by `method`. Throws UserError when the prompt was observed
/// without what the method needs.
[[nodiscard]] KvCache compress_prompt(const Prefill& prompt, const Method& method, Activity& activity);

/// compress_prompt() and the prompt's own logits; of a method that reuses entries, the cache that it puts together,
/// from prompt.memory if there is one, and the logits that follow from it; of a method that prunes the prompt between
/// layers or attends to it in its own way (Method::prompt_pass), what its own prefill gives. Throws what the method
/// throws in it.
[[nodiscard]] PromptState state_after_prompt(Transformer& model, const Prefill& prompt, const Method& method,
                                             Activity& activity);

}  // namespace kvarena
