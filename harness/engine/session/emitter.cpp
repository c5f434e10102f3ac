#include "harness/engine/session/emitter.h"

#include <algorithm>

namespace kvarena {

Emitter::Emitter(SessionOptions options, int64_t prompt_tokens)
    : options_(std::move(options)), prompt_tokens_(prompt_tokens + static_cast<int64_t>(options_.question.size())) {}

Emitter Emitter::answering_again(SessionOptions options) const {
  Emitter again = *this;
  again.options_ = std::move(options);
  again.asked_ = again.options_.question.size();
  return again;
}

int64_t Emitter::remaining(const Session& session) const {
  return options_.most_tokens() - static_cast<int64_t>(session.tokens.size());
}

bool Emitter::forces(int64_t step) const { return options_.forced && step < std::ssize(*options_.forced); }

std::span<const int32_t> Emitter::given(const Session& session) const {
  const auto said = std::ssize(session.tokens);
  if (said == 0 || !forces(said - 1)) return {};
  return std::span(*options_.forced)
      .subspan(said - 1)
      .first(std::clamp<int64_t>(std::ssize(*options_.forced) - said, 0, options_.forced_piece));
}

bool Emitter::stops(const Session& session, int32_t token) const {
  const StopRule& rule = options_.stop;
  if (std::ranges::find(rule.stop_tokens, token) != rule.stop_tokens.end()) return true;
  return rule.stop_when && rule.stop_when(session.tokens);
}

int32_t Emitter::choose(int64_t step, std::span<const float> logits, const Draft* draft) const {
  if (forces(step)) return (*options_.forced)[step];
  const auto position = static_cast<uint64_t>(prompt_tokens_ + step);
  return draft == nullptr ? sample(logits, options_.sampling, position)
                          : sample_verified(logits, options_.sampling, position, *draft);
}

int32_t Emitter::emit(Session& session, std::span<const float> logits, const Draft* draft) {
  const auto step = static_cast<int64_t>(session.tokens.size());
  if (options_.on_logits) options_.on_logits(step, logits);
  const int32_t token = choose(step, logits, draft);
  session.tokens.push_back(token);
  if (!forces(step) && stops(session, token)) {
    session.finish = FinishReason::stop;
  } else if (remaining(session) <= 0) {
    session.finish = FinishReason::length;
  }
  return token;
}

}  // namespace kvarena
