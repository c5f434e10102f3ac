#pragma once
// Draft-and-verify rounds: drafts from a DraftSource, verification on the full cache.

#include <memory>

#include "harness/engine/draft/draft_source.h"
#include "harness/engine/session/emitter.h"
#include "harness/engine/session/offloaded_cache.h"
#include "harness/engine/session/session.h"

namespace kvarena {

/// Unless drafts are accepted by rejection sampling, the emitted tokens are those of plain full-KV decoding with the
/// same sampling settings, bit for bit: a draft is accepted when it equals the token that the verified logits give at
/// its position. With rejection sampling they have that distribution. Where the verifier names another cache to verify
/// on, plain decoding on that cache takes the place of full KV.
///
/// A question that follows the prompt goes through the cache that is verified on; drafters then get its tokens and
/// entries as they get accepted ones.
///
/// With SessionOptions::offload_tier its full cache lies behind the device, and others end its rounds: passes draft, as
/// long as can_draft(), until end_drafting() makes the next one verify. Until then the cache has to be on its way.
///
/// A prompt whose cache lies in a store begins without it: all of it but the last token comes by take_full(), also
/// while the session drafts, and a pass that verifies needs it there. Or it lies behind the device from the beginning.
class VerifySession final : public Session {
 public:
  VerifySession(Transformer& model, const Prefill& prompt, const Verifier& verifier, SessionOptions options);
  /// Without the prompt's cache. Drafts on `compressed`, of the prompt but for its last token; null `verifier`: on
  /// nothing, every token takes a pass over what take_full() gave.
  VerifySession(Transformer& model, std::vector<int32_t> prompt, const Verifier* verifier, KvCache compressed,
                SessionOptions options);
  /// Likewise with the prompt's cache but for its last token behind the device, as SessionOptions::offload_tier leaves
  /// it.
  VerifySession(Transformer& model, std::vector<int32_t> prompt, const Verifier& verifier, KvCache compressed,
                ParkedCache full, SessionOptions options);

  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  [[nodiscard]] int64_t held_bytes() const override { return full_bytes() + source_->held_bytes(); }
  [[nodiscard]] int64_t passing_bytes() const override;
  void stop_sharing() override { full_.own_tails(); }
  /// Bytes of both caches when the full one went behind the device for the first time.
  [[nodiscard]] int64_t start_bytes() const { return start_bytes_; }

  /// Null unless its full cache is offloaded.
  [[nodiscard]] OffloadedCache* offloaded() { return offloaded_ ? &*offloaded_ : nullptr; }
  [[nodiscard]] bool can_draft() const { return !finished() && source_->wants_pass(); }
  /// Tokens that the round under way may draft.
  [[nodiscard]] int64_t most_drafts() const { return most_drafts_; }
  void end_drafting() { source_->end_drafting(); }
  /// Lets the full cache that came for a verification leave the device.
  void release_full() { offloaded_->release(activity.traffic); }

  /// Whether the prompt's cache is there, in a session that began without it.
  [[nodiscard]] bool has_full() const { return !absent_; }
  /// Takes the prompt's cache, in place of one that is there; entries of later tokens follow it.
  void take_full(KvCache prompt);
  /// The stored cache that it drafts on, with what it has drafted since.
  [[nodiscard]] const KvCache& drafted_on() const;
  /// Drops the prompt's cache; entries of later tokens stay.
  void drop_full();
  /// Ends drafting with what was drafted: later tokens are decoded on the full cache, the other one is dropped.
  void stop_drafting();

 private:
  /// Begins no round: what the constructors for stored caches share.
  VerifySession(Transformer& model, std::vector<int32_t> prompt, const Verifier* verifier, KvCache compressed,
                KvCache full, SessionOptions options);
  void begin_round();
  void take_question(std::span<const float> logits);
  void verify(std::span<const float> logits);
  [[nodiscard]] int32_t accepted_row(int32_t row, int32_t token) const;
  void keep_rows(int64_t before, std::span<const int32_t> rows);
  void after_append();
  /// Where options say so, moves the full cache behind the device: with the question in it.
  void offload_full();
  void offload(int64_t before);
  void note_round();
  [[nodiscard]] int64_t draft_limit() const;
  [[nodiscard]] int64_t full_bytes() const { return offloaded_ ? offloaded_->device_bytes() : full_.bytes(); }

  Transformer* model_;
  const Verifier* verifier_;                       // null: nothing is drafted
  std::vector<int32_t> history_;                   // prompt and emitted tokens; the last one is in no cache
  Nested<Method> target_;                          // whose cache is verified on; absent for full KV
  std::shared_ptr<const ModelFacts> model_facts_;  // for it
  KvCache full_;                                   // or what target_ makes of it; without the prompt while absent_
  bool absent_ = false;
  SelectionMeter* meter_;  // null when nothing is measured
  Emitter emitter_;
  DraftSampler sampler_;
  std::unique_ptr<DraftSource> source_;
  std::optional<OffloadedCache> offloaded_;  // whose device side full_ is
  std::optional<ReloadHooks> reload_;
  int64_t start_bytes_ = 0;
  int64_t most_drafts_ = 0;
  Traffic traffic_so_far_;
  std::vector<int32_t> fed_;   // tokens of the verification under way
  std::vector<int32_t> tree_;  // their parents where drafts are a tree
};

}  // namespace kvarena
