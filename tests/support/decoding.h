#pragma once
// A request run to its end, and what is left of it.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/engine/session/session.h"
#include "harness/method/registry.h"

namespace kvarena::testing {

using Logits = std::vector<std::vector<float>>;  // a row for each token

/// Fields as those of Session.
struct Decoded {
  std::vector<int32_t> tokens;
  Logits logits;
  Activity activity;
  std::vector<VerifyRound> rounds;
  std::vector<Traffic> traffic;
  int64_t resident_bytes = 0;
  int64_t peak_host_bytes = 0;
  std::vector<TierBytes> tier_bytes;
  std::string failure;
};

/// A session that writes down its logits. `method` and `logits` must outlive it.
inline std::unique_ptr<Session> start_noted(Transformer& model, const Prefill& prompt, const Method& method,
                                            Logits& logits, SessionOptions options) {
  options.on_logits = [&logits](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
  return start_session(model, prompt, method, std::move(options));
}

inline Decoded decode(Transformer& model, const Prefill& prompt, const Method& method, int64_t new_tokens,
                      SessionOptions options = {}) {
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

inline Decoded decode(Transformer& model, const Prefill& prompt, const nlohmann::json& spec, int64_t new_tokens,
                      SessionOptions options = {}) {
  return decode(model, prompt, *make_method(spec, "test"), new_tokens, std::move(options));
}

}  // namespace kvarena::testing
