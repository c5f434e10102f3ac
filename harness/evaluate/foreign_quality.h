#pragma once
// Quality of methods that another engine computes.

#include <span>
#include <vector>

#include "harness/engine/foreign/transformers_engine.h"
#include "harness/engine/session/emitter.h"
#include "harness/evaluate/against_reference.h"

namespace kvarena::evaluate {

/// Tokens and bytes of an answer that another engine computes.
class ForeignSession final : public Session {
 public:
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  [[nodiscard]] int64_t held_bytes() const override { return resident_bytes; }
};

/// An answer under one method, and what its cache was.
struct ForeignAnswer {
  ForeignSession session;  // of the free answer
  ForeignOutcome outcome;
};

/// Sinks for the free answer's logits, and those along given tokens.
struct ForeignRun {
  LogitsSink on_logits;
  std::vector<int32_t> forced;      // empty: only the free answer
  LogitsSink on_forced_logits;      // of steps along them
  std::function<bool()> wants_all;  // after the free answer, whether it is followed by these; null: always
};

/// Fills in an answer to the request, free and then along the forced tokens, from one compressed cache. `asked` says
/// the method. The answer's session grows while the sinks are called.
void answer_elsewhere(TransformersEngine& engine, const Request& request, ForeignRequest asked, ForeignRun run,
                      ForeignAnswer& answer);

/// Full KV's answer of that engine.
[[nodiscard]] Reference reference_elsewhere(TransformersEngine& engine, const Request& request);

/// An entry of a config; `reference`: its method is of the reference family.
struct ForeignMethod {
  nlohmann::json spec;
  bool reference = false;
};

/// As evaluate_quality(), with that engine's full KV as the reference. `chunk`: prompt tokens in a pass of the methods'
/// prompts, 0 = all. Bytes are those that its caches hold.
[[nodiscard]] std::vector<experiment::SampleOutcome> evaluate_quality_elsewhere(TransformersEngine& engine,
                                                                                const Request& request,
                                                                                std::span<const ForeignMethod> methods,
                                                                                int64_t chunk = 0);

}  // namespace kvarena::evaluate
