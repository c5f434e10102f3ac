#pragma once
// Bytes that requests may come to hold, which are promised before they are taken.

#include <cstdint>

#include "harness/engine/session/session.h"
#include "harness/method/method.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// Bytes of a full cache of so many tokens.
[[nodiscard]] int64_t full_cache_bytes(const Transformer& model, int64_t tokens);

/// How much a cache of a prompt may still grow, a method's metadata included, while it takes `answer` tokens.
[[nodiscard]] int64_t growth_bytes(const Transformer& model, int64_t prompt, int64_t answer);

/// Bytes that a request may come to hold until it has its first token, with its prompt's own cache; `prompt`: tokens,
/// the question's included.
[[nodiscard]] int64_t bytes_to_start(const Transformer& model, const Method& method, int64_t prompt, int64_t answer);

/// Bytes that a session past its prompt may come to hold until its end; `held`: what it holds now.
[[nodiscard]] int64_t bytes_to_end(const Transformer& model, const Method& method, const Session& session, int64_t held,
                                   int64_t prompt, int64_t answer);

}  // namespace kvarena
