#pragma once
// A prompt's cache by reuse: look up, recover positions, choose, compute what was chosen.

#include <map>
#include <memory>
#include <vector>

#include "harness/engine/reuse/chunk_store.h"
#include "harness/engine/reuse/prefix_tree.h"
#include "harness/engine/reuse/prompt_layout.h"
#include "harness/method/reuser.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// Entries that earlier requests to one model left for later ones.
struct ReuseMemory {
  std::shared_ptr<ChunkStore> chunks = std::make_shared<MemoryChunkStore>();
  std::map<int64_t, PrefixTree> prefixes;  // by tokens of a block
};

/// Savings and costs of reuse in one request.
struct ReuseRecord {
  int64_t reused = 0;               // tokens whose last layer was not computed
  double recompute_share = 0;       // of all tokens and layers, those that were computed; the question included
  int64_t loaded_bytes = 0;         // of entries taken from the memory
  double load_s = 0;                // looking up, copying and rotating them, and taking them to a device
  double score_s = 0;               // the speculative model's reading, while entries are loaded
  double align_s = 0;               // choosing tokens and taking the choice to the target's, while entries are loaded
  double prefill_s = 0;             // computing what was chosen, up to the first logits
  double total_s = 0;               // all of it
  std::vector<int32_t> recomputed;  // context tokens that all layers computed
};

struct ReusedPrompt {
  KvCache cache;
  std::vector<float> logits;  // [vocab_size], of the first new token
  ReuseRecord record;
};

/// Cuts the prompt into parts by what is known of it. The question is the last token where nothing else is known.
[[nodiscard]] ReusePrompt reuse_prompt_of(std::span<const int32_t> tokens, const PromptLayout& layout,
                                          const Reuser& reuser);

/// Computes what the reuser would find if the prompt's parts had been seen before and the memory does not hold: every
/// chunk alone; for prefixes the prompt's beginning up to its first chunk, since later ones stand elsewhere in other
/// prompts. Opens the speculative model, if the reuser has one.
void prime(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser,
           ReuseMemory& memory);

/// A prompt on its way to a cache out of a memory that holds what prime() puts there: entries are loaded, and tokens
/// chosen meanwhile, when it is made; then the tokens without entries and the chosen ones are computed, all at once or
/// some at a time between other passes. The result does not depend on how they are cut, bit for bit.
class ReuseRun {
 public:
  /// Takes what must outlive the run. Throws UserError when chunks cannot be brought to their positions
  /// (recovery.h), or as speculate() does.
  ReuseRun(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser,
           ReuseMemory& memory);

  /// Tokens that have not been computed.
  [[nodiscard]] int64_t remaining() const { return std::ssize(rows_) - done_; }
  /// Computes at most `most` more. All of them where the reuser narrows, which compares whole layers.
  void compute(int64_t most);
  /// Gives the cache, once nothing remains.
  [[nodiscard]] ReusedPrompt finish();
  /// Bytes that the cache holds now.
  [[nodiscard]] int64_t bytes() const { return result_.cache.bytes(); }

 private:
  Transformer* model_;
  const Reuser* reuser_;
  ReusePrompt prompt_;
  ReusedPrompt result_;
  std::vector<int32_t> rows_;  // to compute, ascending
  int64_t done_ = 0;           // of these
  int64_t computed_ = 0;       // rows over all layers
  int64_t last_layer_ = 0;     // rows of the last one
};

/// A ReuseRun from beginning to end.
[[nodiscard]] ReusedPrompt reuse_prompt(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout,
                                        const Reuser& reuser, ReuseMemory& memory);

}  // namespace kvarena
