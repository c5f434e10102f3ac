#pragma once
// The prompt, once: a full cache, the first logits, and what methods asked to observe.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/engine/reuse/reuse_prompt.h"
#include "harness/engine/session/shared_pass.h"
#include "harness/method/method.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// Called with the logits [vocab_size] of one step after another.
using LogitsSink = std::function<void(int64_t step, std::span<const float> logits)>;

class CompressedPrompts;
class PromptObserver;

/// A prompt's full prefill. Methods start from clones of its cache, so that judging one more method costs its decoding
/// alone. Unless Needs::sliding, layers with a window hold what later tokens see, and nothing is observed of them.
struct Prefill {
  std::vector<int32_t> tokens;
  KvCache cache;
  std::vector<float> logits;                    // [vocab_size], of the first new token
  std::vector<LayerObservations> observations;  // [layers]
  std::shared_ptr<const ModelFacts> model;
  double seconds = 0;
  double observe_seconds = 0;           // of these, what methods asked to observe took
  PromptLayout layout;                  // as far as the caller knows; set after the prefill
  std::shared_ptr<ReuseMemory> memory;  // what methods that reuse entries share; null: each primes one of its own
  /// Keeps what each method made of the prompt, so that many questions find copies of it; null: each session
  /// compresses.
  std::shared_ptr<CompressedPrompts> compressed;
};

/// A prompt that nobody has computed yet: what a method that reuses entries starts from when no other method needs the
/// full cache. Throws as prefill() does.
[[nodiscard]] Prefill unread_prompt(Transformer& model, std::span<const int32_t> tokens,
                                    std::shared_ptr<const ModelFacts> facts = nullptr);

/// Prompt tokens in one pass, unless said otherwise.
inline constexpr int64_t kPrefillChunk = 512;

/// A prompt on its way through the model, so that its chunks can share passes with other requests. The result does not
/// depend on how it is cut, bit for bit.
class PromptRun final : public PassMember {
 public:
  /// `facts` says what methods may know of the model (model_facts.h); without it they learn what the weights alone
  /// tell. Throws UserError when the prompt is empty or longer than the model's window. The model must outlive the run.
  PromptRun(Transformer& model, std::span<const int32_t> tokens, const Needs& needs,
            std::shared_ptr<const ModelFacts> facts = nullptr);
  /// Goes on from `begun`, a cache of the prompt's first begun.length tokens; at least one must follow. Only what
  /// follows is observed. Throws UserError also where rotations depend on the prompt's length.
  PromptRun(Transformer& model, std::span<const int32_t> tokens, std::shared_ptr<const ModelFacts> facts,
            KvCache begun);
  ~PromptRun() override;

  /// Tokens that have not been through the model.
  [[nodiscard]] int64_t remaining() const;
  /// Feeds at most so many tokens in each pass from now on; kPrefillChunk unless said otherwise.
  void set_chunk(int64_t tokens) { chunk_ = tokens; }
  /// Tells the logits that follow each token; step 0 is the first token's. Said before the first pass.
  void on_logits(LogitsSink sink) { on_logits_ = std::move(sink); }
  /// Feeds the next chunk. The run must stay where it is until consume().
  [[nodiscard]] SequencePass next_pass() override;
  /// Takes the pass's logits: a row for each token where somebody is told them, otherwise one when the prompt ended
  /// with it.
  void consume(std::span<const float> logits) override;
  /// Throws UserError with the reason.
  void failed(const std::string& reason) override;
  /// Gives what the prompt left, once nothing remains. Runs the extra passes that `needs` asks for, `chunk` tokens at a
  /// time, and throws UserError when the window has no room for them. The model must outlive what observed its output
  /// projection.
  [[nodiscard]] Prefill finish(int64_t chunk = kPrefillChunk);
  /// Bytes that the cache holds now.
  [[nodiscard]] int64_t bytes() const { return result_.cache.bytes(); }

 private:
  void forget_windows();

  Transformer* model_;
  Needs needs_;
  Prefill result_;
  std::unique_ptr<PromptObserver> observer_;
  int64_t chunk_ = kPrefillChunk;
  int64_t done_ = 0;  // tokens in passes so far, the one under way included
  LogitsSink on_logits_;
  int64_t told_ = 0;  // steps
};

/// The whole prompt by itself, in chunks of at most `chunk` tokens, which bounds activation memory. Takes and throws
/// what PromptRun does.
[[nodiscard]] Prefill prefill(Transformer& model, std::span<const int32_t> tokens, const Needs& needs,
                              int64_t chunk = kPrefillChunk, std::shared_ptr<const ModelFacts> facts = nullptr);

}  // namespace kvarena
