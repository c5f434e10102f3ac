#pragma once
// From logits to tokens: sampling or teacher forcing, stop rules.

#include "harness/engine/session/session.h"

namespace kvarena {

/// Turns each step's logits into the session's next token. One instance a session.
class Emitter {
 public:
  Emitter(SessionOptions options, int64_t prompt_tokens);

  /// Reports the logits, chooses the token, appends it to `session.tokens` and sets `session.finish` when it ends.
  /// With a draft the token is chosen by rejection sampling against it (harness/model/sampling.h).
  int32_t emit(Session& session, std::span<const float> logits, const Draft* draft = nullptr);
  [[nodiscard]] const SessionOptions& options() const { return options_; }
  /// The settings that tokens are drawn by.
  [[nodiscard]] const SamplingSettings& sampling() const { return options_.sampling; }
  /// New tokens still allowed.
  [[nodiscard]] int64_t remaining(const Session& session) const;

 private:
  [[nodiscard]] int32_t choose(int64_t step, std::span<const float> logits, const Draft* draft) const;
  [[nodiscard]] bool stops(const Session& session, int32_t token) const;

  SessionOptions options_;
  int64_t prompt_tokens_;
};

}  // namespace kvarena
