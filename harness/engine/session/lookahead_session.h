#pragma once
// Decoding with a guess at the next token beside the present one.

#include <optional>

#include "harness/engine/session/emitter.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/session.h"

namespace kvarena {

/// The first pass feeds the first token alone, to guess what follows it, and leaves nothing in the cache. Every later
/// one feeds the present token and the guess at the next: the first row gives the output, the second the next guess,
/// and only the first row's entries stay. Guesses are drawn as the output is. At the end of the model's window, where a
/// guess has no room, the present token is fed alone. Of a question the next token is known, and takes the guess's
/// place.
class LookaheadSession final : public Session {
 public:
  LookaheadSession(Transformer& model, const Prefill& prompt, const Method& method, SessionOptions options);

  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  [[nodiscard]] int64_t held_bytes() const override { return cache_.bytes(); }
  void stop_sharing() override { cache_.own_tails(); }
  [[nodiscard]] bool preparing() const override { return !guess_; }

 private:
  /// Forgets the guess's entries before after_append().
  class Hooks final : public MethodHooks {
   public:
    using MethodHooks::MethodHooks;
    int64_t guesses = 0;  // rows of the pass whose entries do not stay

   protected:
    void after_observe(LayerCache& cache) override;
  };

  const ModelConfig* model_config_;
  KvCache cache_;
  std::shared_ptr<const ModelFacts> model_facts_;
  Hooks hooks_;
  AttentionHooks* watched_;  // hooks_, under a meter where one measures
  Emitter emitter_;
  std::optional<int32_t> guess_;  // at the token after the newest one; absent before the first pass
  std::vector<int32_t> fed_;
  Traffic traffic_so_far_;
};

}  // namespace kvarena
