#pragma once
// Draft-and-verify rounds: drafts from wherever the verifier takes them, verification on the full cache.

#include <memory>

#include "harness/engine/draft_source.h"
#include "harness/engine/emitter.h"
#include "harness/engine/session.h"

namespace kvarena {

/// Unless drafts are judged by rejection sampling, the emitted tokens are those of plain full-KV decoding with the same
/// sampling settings, bit for bit: a draft is accepted when it equals the token that the verified logits give at its
/// position. With rejection sampling they have that distribution. Where the verifier names another cache to verify on,
/// plain decoding on that cache takes the place of full KV.
class VerifySession final : public Session {
 public:
  VerifySession(Transformer& model, const Prefill& prompt, const Verifier& verifier, SessionOptions options);

  [[nodiscard]] bool finished() const override { return finish != FinishReason::running; }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  [[nodiscard]] int64_t held_bytes() const override { return full_.bytes() + source_->held_bytes(); }

 private:
  void begin_round();
  void verify(std::span<const float> logits);
  [[nodiscard]] int32_t accepted_row(int32_t row, int32_t token) const;
  void keep_rows(int64_t before, std::span<const int32_t> rows);
  void settle();

  Transformer* model_;
  const Verifier* verifier_;
  std::vector<int32_t> history_;                   // prompt and emitted tokens; the last one is in no cache
  std::unique_ptr<Method> target_;                 // whose cache is verified on; null for full KV
  std::shared_ptr<const ModelFacts> model_facts_;  // for it
  KvCache full_;                                   // or what target_ makes of it
  SelectionMeter* meter_;                          // null when nothing is measured
  Emitter emitter_;
  DraftSampler sampler_;
  std::unique_ptr<DraftSource> source_;
  std::vector<int32_t> fed_;   // tokens of the verification under way
  std::vector<int32_t> tree_;  // their parents where drafts are a tree
};

}  // namespace kvarena
