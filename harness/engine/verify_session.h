#pragma once
// Draft-and-verify rounds: drafting on a throw-away copy of the drafter's cache, verification on the full one.

#include <optional>

#include "harness/engine/emitter.h"
#include "harness/engine/observe.h"
#include "harness/engine/session.h"
#include "harness/method/verifier.h"

namespace kvarena {

/// The emitted tokens are those of plain full-KV decoding with the same sampling settings, bit for bit: a draft is
/// accepted when it equals the token that the verified logits give at its position.
class VerifySession final : public Session {
 public:
  VerifySession(Transformer& model, const Prefill& prompt, const Verifier& verifier, SessionOptions options);

  [[nodiscard]] bool finished() const override { return finish != FinishReason::running; }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;

 private:
  void begin_round();
  void verify(std::span<const float> logits);
  /// Brings both caches to the committed tokens: `kept` of the pass's entries stay.
  void commit(int64_t kept);
  [[nodiscard]] bool drafting() const { return static_cast<int64_t>(drafted_.size()) < limit_; }

  Transformer* model_;
  const Verifier* verifier_;
  std::vector<int32_t> history_;  // prompt and emitted tokens; the last one is in no cache
  KvCache full_;
  std::shared_ptr<const ModelFacts> model_facts_;
  std::unique_ptr<Method> drafter_;   // null: the verifier proposes without a cache
  std::optional<KvCache> committed_;  // the drafter's cache at the committed length
  std::optional<KvCache> scratch_;    // its copy of this round, thrown away after it
  std::optional<MethodHooks> hooks_;
  Emitter emitter_;
  std::vector<int32_t> drafted_;
  std::vector<int32_t> fed_;  // tokens of the pass under way
  int64_t limit_ = 0;         // tokens to draft this round
};

}  // namespace kvarena
