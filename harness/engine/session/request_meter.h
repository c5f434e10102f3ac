#pragma once
// Bytes and traffic that a decoding session reports after each pass.

#include "harness/cache/layer_cache.h"
#include "harness/engine/session/session.h"

namespace kvarena {

/// Notes what every tier holds of the cache now; `beside`: bytes on the device of the session's other caches.
void note_bytes(Session& session, const KvCache& cache, int64_t beside = 0);
/// Notes the pass's traffic. `before`: the session's traffic as it was before the pass; it is brought up to date.
void note_traffic(Session& session, Traffic& before);
/// Notes the pass's traffic, and the bytes and peaks of every tier; what the first pass brought is resident. `before`:
/// the session's traffic as it was before the pass; it is brought up to date.
void note_pass(Session& session, const KvCache& cache, Traffic& before);

}  // namespace kvarena
