#include "harness/engine/session/session.h"

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

bool Session::answer_again(SessionOptions /*options*/) { return false; }

void run_to_first_token(Transformer& model, Session& session) {
  PassMember* const one[] = {&session};
  while ((session.tokens.empty() || session.preparing()) && !session.finished()) run_pass(model, one);
}

void run_together(Transformer& model, std::span<Session* const> sessions, const std::function<void()>& on_pass) {
  while (true) {
    std::vector<PassMember*> running;
    for (Session* session : sessions) {
      if (!session->finished()) running.push_back(session);
    }
    if (running.empty()) return;
    run_pass(model, running);
    if (on_pass) on_pass();
  }
}

}  // namespace kvarena
