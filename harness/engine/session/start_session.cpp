#include "harness/engine/session/future.h"
#include "harness/engine/session/lookahead_session.h"
#include "harness/engine/session/plain_session.h"
#include "harness/engine/session/session.h"
#include "harness/engine/session/verify_session.h"

namespace kvarena {
namespace {

std::unique_ptr<Session> start(Transformer& model, const Prefill& prompt, const Method& method,
                               SessionOptions options) {
  if (method.verifier() != nullptr) {
    return std::make_unique<VerifySession>(model, prompt, *method.verifier(), std::move(options));
  }
  if (method.looks_ahead()) return std::make_unique<LookaheadSession>(model, prompt, method, std::move(options));
  return std::make_unique<PlainSession>(model, prompt, method, std::move(options));
}

}  // namespace

std::unique_ptr<Session> start_session(Transformer& model, const Prefill& prompt, const Method& method,
                                       SessionOptions options) {
  const int64_t future = method.needs().future;
  if (future == 0 || options.question.empty()) return start(model, prompt, method, std::move(options));
  const Prefill asked = with_future(model, prompt, options.question, future);
  return start(model, asked, method, std::move(options));
}

}  // namespace kvarena
