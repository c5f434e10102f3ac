#pragma once
// A prompt's cache by reuse: look up, recover positions, choose, compute what was chosen.

#include <chrono>
#include <optional>
#include <stop_token>
#include <vector>

#include "harness/engine/reuse/part_entries.h"
#include "harness/engine/reuse/priming.h"
#include "harness/engine/reuse/speculation.h"

namespace kvarena {

/// Savings and costs of reuse in one request.
struct ReuseRecord {
  int64_t reused = 0;               // tokens whose last layer was not computed
  double recompute_share = 0;       // of all tokens and layers, those that were computed; the question included
  int64_t loaded_bytes = 0;         // of entries taken from the memory
  double load_s = 0;                // looking up, copying and rotating them, and taking them to a device
  double score_s = 0;               // the speculative model's reading, while entries are loaded; shared passes whole
  double align_s = 0;               // choosing tokens and taking the choice to the target's, while entries are loaded
  double prefill_s = 0;             // computing what was chosen, up to the first logits; shared passes whole
  double total_s = 0;               // all of it
  std::vector<int32_t> recomputed;  // context tokens that all layers computed
};

struct ReusedPrompt {
  KvCache cache;
  std::vector<float> logits;  // [vocab_size], of the first new token
  ReuseRecord record;
};

/// A prompt on its way to a cache out of a memory that holds what Priming puts there. First entries are loaded, and
/// tokens scored and chosen meanwhile: beside passes of other requests, but for a model that scores its own prompts,
/// whose reading is passes that others may share. Then tokens without entries and the chosen ones are computed, at once
/// or some at a time, in passes that others may share. The result depends on none of this, bit for bit.
class ReuseRun final : public PassMember {
 public:
  /// Takes what must outlive the run. Throws UserError when chunks cannot be brought to their positions (recovery.h).
  ReuseRun(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser,
           ReuseMemory& memory);

  enum class Beginning {
    alone,         // no other pass of the model runs: it reads itself
    beside_passes  // any may run: what it reads itself is left to reads_itself()
  };
  /// Loads, scores and chooses; once, by any thread. Throws UserError as speculate() does.
  void begin(Beginning how);
  /// Has begin() end early: the run is of no more use.
  void stop() { stop_.request_stop(); }
  /// Whether the next passes are those of the model that scores its own prompt; they may run beside begin().
  [[nodiscard]] bool reads_itself() const { return reading_.has_value(); }
  /// Arranges what begin() and the model's own reading left. Before anything is computed.
  void arrange();

  /// Tokens that have not been computed; all of them before they are chosen.
  [[nodiscard]] int64_t remaining() const { return arranged_ ? std::ssize(rows_) - done_ : std::ssize(prompt_.tokens); }
  /// Feeds at most so many tokens in each pass from now on.
  void set_chunk(int64_t tokens) { chunk_ = tokens; }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  /// Throws UserError with the reason.
  void failed(const std::string& reason) override;
  /// Whether the reuser compares whole layers and lets fewer tokens go on: what is computed then shares no pass.
  [[nodiscard]] bool narrows() const { return narrows_; }
  /// Computes what remains, of a reuser that narrows.
  void compute();
  /// Gives the cache, once nothing remains.
  [[nodiscard]] ReusedPrompt finish();
  /// Bytes that its caches hold now.
  [[nodiscard]] int64_t bytes() const {
    return result_.cache.ledger->current(Tier::device) + (reading_ ? reading_->run.bytes() : 0);
  }

 private:
  /// The model's own reading of the prompt.
  struct Reading {
    Reading(Transformer& model, std::span<const int32_t> tokens, double share)
        : norms(model, std::ssize(tokens), share), run(model, tokens, &norms, norms.layers()) {}
    ResidualNorms norms;
    TokenRun run;
  };

  void load();
  /// Divides the parts by whether something of them is computed.
  void divide_parts();
  /// Adjusts the parts before the next row, and returns how many rows the next pass may take.
  int64_t rows_of_pass();
  void score();
  void choose(const Speculation* speculation);
  /// Takes what a pass of `seconds` computed.
  void count(std::span<const int64_t> rows, std::span<const int32_t> positions, double seconds);

  Transformer* model_;
  const PromptLayout* layout_;
  const Reuser* reuser_;
  ReuseMemory* memory_;
  ReusePrompt prompt_;
  ReusedPrompt result_;
  std::stop_source stop_;
  std::optional<Reading> reading_;  // until it chose
  bool narrows_;
  bool arranged_ = false;
  std::vector<ChunkCache> chunks_;  // of the parts, where they are adjusted or their cells are shared
  std::optional<PartEntries> entries_;
  std::vector<size_t> changed_;     // parts but the first of which something is computed
  std::vector<size_t> unadjusted_;  // the others, which wait for those before them
  std::vector<int32_t> rows_;       // to compute, ascending
  int64_t done_ = 0;                // of these, in passes so far
  int64_t chunk_ = 512;             // bounds activations
  std::vector<int32_t> tokens_;     // of the pass under way
  std::chrono::steady_clock::time_point pass_begin_;
  int64_t computed_ = 0;    // rows over all layers
  int64_t last_layer_ = 0;  // rows of the last one
};

/// A ReuseRun from beginning to end.
[[nodiscard]] ReusedPrompt reuse_prompt(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout,
                                        const Reuser& reuser, ReuseMemory& memory);

}  // namespace kvarena
