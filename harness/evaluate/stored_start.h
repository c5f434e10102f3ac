#pragma once
// Served requests whose prompts' caches were computed before they came.

#include <string>

#include "harness/engine/serving/serving_engine.h"
#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/request.h"

namespace kvarena::evaluate {

/// Why a method's requests cannot begin with stored caches, "" when they can: full KV's, and those of a verifier with a
/// schedule that drafts on a cache that can be stored.
[[nodiscard]] std::string stored_start_problem(const EvaluatedMethod& evaluated);

/// Reads the request's prompt but for its last token now, and lets `served` load it when it comes: all of the cache, or
/// what a verifier drafts on. These bytes lie in the storage of a tier, full caches that are verified on in the same
/// one; both come over its link. Throws UserError where prompts cannot be stored, TierFull.
void store_start(Transformer& model, const Request& request, ServedRequest& served);

}  // namespace kvarena::evaluate
