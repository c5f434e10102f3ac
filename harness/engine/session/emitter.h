#pragma once
// A session's tokens: the question's as they are fed, and the new ones from logits, by sampling or teacher forcing and
// stop rules.

#include "harness/engine/session/session.h"

namespace kvarena {

/// Turns each step's logits into the session's next token. One instance a session.
class Emitter {
 public:
  Emitter(SessionOptions options, int64_t prompt_tokens);

  /// The question's tokens that were not fed; logits count once there are none.
  [[nodiscard]] std::span<const int32_t> unasked() const { return std::span(options_.question).subspan(asked_); }
  /// Notes that the next `count` of them were fed.
  void ask(size_t count) { asked_ += count; }
  /// Given tokens that the next pass may feed, from the session's last token on; none where the model chose that.
  [[nodiscard]] std::span<const int32_t> given(const Session& session) const;
  /// One of other options for the same prompt and question, which was fed.
  [[nodiscard]] Emitter answering_again(SessionOptions options) const;

  /// Reports the logits, chooses the token, appends it to `session.tokens` and sets `session.finish` when it ends.
  /// With a draft the token is chosen by rejection sampling against it (harness/model/sampling.h).
  int32_t emit(Session& session, std::span<const float> logits, const Draft* draft = nullptr);
  [[nodiscard]] const SessionOptions& options() const { return options_; }
  /// The settings that tokens are drawn by.
  [[nodiscard]] const SamplingSettings& sampling() const { return options_.sampling; }
  /// New tokens still allowed.
  [[nodiscard]] int64_t remaining(const Session& session) const;

 private:
  /// Whether the token of this step is given.
  [[nodiscard]] bool forces(int64_t step) const;
  [[nodiscard]] int32_t choose(int64_t step, std::span<const float> logits, const Draft* draft) const;
  [[nodiscard]] bool stops(const Session& session, int32_t token) const;

  SessionOptions options_;
  int64_t prompt_tokens_;  // with the question's
  size_t asked_ = 0;
};

}  // namespace kvarena
