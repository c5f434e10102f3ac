#pragma once
// A prompt's cache as a method leaves it.

#include <map>
#include <optional>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/method/method.h"

namespace kvarena {

/// All layers of a cache at the end of a prompt of so many tokens.
[[nodiscard]] std::vector<LayerContext> contexts_of(KvCache& cache, int64_t prompt_tokens, const ModelFacts* model,
                                                    Activity& activity);
/// Layers as above, of a prompt that is at hand.
[[nodiscard]] std::vector<LayerContext> contexts_of(KvCache& cache, const Prefill& prompt, Activity& activity);

/// Removes the newest `count` entries of every head.
void drop_newest(LayerCache& layer, int64_t count);

/// Tells the method of results of tools, where it goes by them and there are any.
void tell_results(const Method& method, KvCache& cache, std::span<const ResultTokens> results);

class PromptMeter;

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
    Activity activity;     // of compressing
    int64_t sessions = 0;  // that may still begin with it; 0: any number
  };
  std::map<const Method*, Kept> by_method;
};

/// Whether sessions of the method need the prompt's full cache only until the method has compressed it.
[[nodiscard]] bool outlives_full_cache(const Method& method);

/// Has the next `sessions` of the method begin with what it made of the prompt: with copies, and the last one with the
/// state itself.
void hand_over(Prefill& prompt, const Method& method, PromptState state, const Activity& activity, int64_t sessions);

/// Turns a prompt out of reused entries into a state for sessions.
[[nodiscard]] PromptState reused_state(ReusedPrompt reused, Activity& activity);

/// Compresses the prompt's cache in place and hands it over. No other sessions can begin with the prompt then.
void compress_in_place(Prefill& prompt, const Method& method, int64_t sessions);

/// A clone of the prompt's cache, compressed by `method`. Throws UserError when the prompt was observed
/// without what the method needs.
[[nodiscard]] KvCache compress_prompt(const Prefill& prompt, const Method& method, Activity& activity);

/// compress_prompt() and the prompt's own logits; of a method that reuses entries, the cache that it puts together,
/// from prompt.memory if there is one, and the logits that follow from it; of a method that prunes the prompt between
/// layers or attends to it in its own way (Method::prompt_pass), what its own prefill gives. `meter`, when not null,
/// watches a prompt that the method attends to in one pass; of a copy of what was made before it sees nothing. Throws
/// what the method throws in it.
[[nodiscard]] PromptState state_after_prompt(Transformer& model, const Prefill& prompt, const Method& method,
                                             Activity& activity, PromptMeter* meter = nullptr);

}  // namespace kvarena
