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
std::unique_ptr<Session> start_noted(Transformer& model, const Prefill& prompt, const Method& method, Logits& logits,
                                     SessionOptions options);

Decoded decode(Transformer& model, const Prefill& prompt, const Method& method, int64_t new_tokens,
               SessionOptions options = {});

Decoded decode(Transformer& model, const Prefill& prompt, const nlohmann::json& spec, int64_t new_tokens,
               SessionOptions options = {});

}  // namespace kvarena::testing
