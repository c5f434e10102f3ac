#include "harness/engine/session/session.h"

#include <algorithm>
#include <chrono>

#include "harness/engine/session/lookahead_session.h"
#include "harness/engine/session/plain_session.h"
#include "harness/engine/session/verify_session.h"

namespace kvarena {

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::running: return "running";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::failed: return "failed";
  }
  return "";
}

std::unique_ptr<Session> start_session(Transformer& model, const Prefill& prompt, const Method& method,
                                       SessionOptions options) {
  if (method.verifier() != nullptr) {
    return std::make_unique<VerifySession>(model, prompt, *method.verifier(), std::move(options));
  }
  if (method.looks_ahead()) return std::make_unique<LookaheadSession>(model, prompt, method, std::move(options));
  return std::make_unique<PlainSession>(model, prompt, method, std::move(options));
}

void run_together(Transformer& model, std::span<Session* const> sessions,
                  const std::function<void(double seconds)>& on_pass) {
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  while (true) {
    std::vector<Session*> running;
    std::vector<SequencePass> batch;
    for (Session* session : sessions) {
      if (session->finished()) continue;
      running.push_back(session);
      batch.push_back(session->next_pass());
    }
    if (batch.empty()) return;

    const auto start = std::chrono::steady_clock::now();
    std::span<const float> logits = model.forward(batch);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (size_t i = 0; i < running.size(); ++i) {
      const size_t rows = batch[i].logits == LogitsRows::all ? batch[i].tokens.size() : 1;
      running[i]->consume(logits.first(rows * vocab));
      logits = logits.subspan(rows * vocab);
    }
    if (on_pass) on_pass(seconds);
  }
}

}  // namespace kvarena
