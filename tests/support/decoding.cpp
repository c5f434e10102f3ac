#include "tests/support/decoding.h"

namespace kvarena::testing {

std::unique_ptr<Session> start_noted(Transformer& model, const Prefill& prompt, const Method& method, Logits& logits,
                                     SessionOptions options) {
  options.on_logits = [&logits](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
  return start_session(model, prompt, method, std::move(options));
}

Decoded decode(Transformer& model, const Prefill& prompt, const Method& method, int64_t new_tokens,
               SessionOptions options) {
  options.stop.max_new_tokens = new_tokens;
  Decoded result;
  const auto session = start_noted(model, prompt, method, result.logits, std::move(options));
  Session* const sessions[] = {session.get()};
  run_together(model, sessions);
  result.tokens = session->tokens;
  result.activity = session->activity;
  result.rounds = session->rounds;
  result.traffic = session->traffic;
  result.resident_bytes = session->resident_bytes;
  result.peak_host_bytes = session->peak_host_bytes;
  result.tier_bytes = session->tier_bytes;
  result.failure = session->failure;
  return result;
}

Decoded decode(Transformer& model, const Prefill& prompt, const nlohmann::json& spec, int64_t new_tokens,
               SessionOptions options) {
  return decode(model, prompt, *make_method(spec, "test"), new_tokens, std::move(options));
}

}  // namespace kvarena::testing
