#pragma once
// Decoding one token a pass on the method's cache.

#include "harness/cache/checkpoint.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/emitter.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/selection_meter.h"
#include "harness/engine/session/session.h"

namespace kvarena {

class PlainSession final : public Session {
 public:
  PlainSession(Transformer& model, const Prefill& prompt, const Method& method, SessionOptions options);

  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  [[nodiscard]] int64_t held_bytes() const override { return state_.cache.bytes(); }
  void stop_sharing() override { state_.cache.own_tails(); }
  [[nodiscard]] bool answer_again(SessionOptions options) override;
  /// Bytes of the device that its cache needs at least with so many tokens; absent where none of it can leave.
  [[nodiscard]] std::optional<int64_t> least_bytes(int64_t tokens) const;
  /// Has the cache give up room, where it can, until the next pass may take at most so many bytes of the device. Before
  /// the first pass peak_bytes is then that of the start, and later ones are counted anew.
  void hold_at_most(int64_t bytes);

 private:
  /// Where the answer departed from another.
  struct Departure {
    Departure(KvCache& cache, size_t before, std::span<const float> of_token, const SelectionMeter* meter);

    size_t tokens;  // before it
    LedgerPtr ledger = std::make_shared<MemoryLedger>();
    CacheCheckpoint checkpoint;
    std::vector<RecurrentState> states;
    std::vector<float> logits;
    std::optional<SelectionMeter::Measured> measured;
  };
  /// Holds back what answer_again() needs, where the last token, of these logits, is the first that departs and that
  /// takes little.
  void note_departure(std::span<const float> logits);

  PromptState state_;
  std::shared_ptr<const ModelFacts> model_facts_;
  size_t piece_;     // tokens of the question, or of a given answer, in a pass
  size_t rows_ = 1;  // of logits that the pass asked for
  MethodHooks hooks_;
  AttentionHooks* watched_;                   // hooks_, under a meter where one measures
  const std::vector<int32_t>* departs_from_;  // null once it did
  Emitter emitter_;
  Traffic traffic_so_far_;
  std::optional<Departure> departure_;
};

}  // namespace kvarena
