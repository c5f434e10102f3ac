#pragma once
// A context's cache at rest: what a method leaves of it as bytes, and the cache that those bytes are.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/method/method.h"

namespace kvarena {

/// Why caches of `method` cannot be stored, "" when they can. Stored are the entries that a dropping method keeps, in
/// the cache's own type, the stream of a codec for caches at rest, and what a codec packs for attention (Codec::
/// storable()), which comes back packed; not indexes, nor what goes on acting while decoding.
[[nodiscard]] std::string storing_problem(const Method& method);

/// Reads `prompt` but for its last token, which is its request's own, with what `method` needs, null: nothing. Throws
/// UserError for prompts of less than two tokens, and where keys depend on the prompt's length.
[[nodiscard]] Prefill prefill_to_store(Transformer& model, std::span<const int32_t> prompt, const Method* method,
                                       std::shared_ptr<const ModelFacts> facts);

/// Writes what `method` leaves of the prompt's cache, null: all of it. Deterministic. `divided`: its front lies apart
/// (share_front()), and so does that of the cache that is restored, but for codecs of caches at rest. Throws UserError
/// with storing_problem(), and when the prompt was observed without what the method needs.
[[nodiscard]] std::vector<std::byte> store_cache(const Prefill& prompt, const Method* method, bool divided = false);

/// Writes a cache that restore_cache() gave, of another method than a codec for caches at rest: the bytes that it was
/// restored from.
[[nodiscard]] std::vector<std::byte> store_again(const KvCache& cache);
/// Whether `method` is a codec for caches at rest, whose bytes its restored cache does not give again.
[[nodiscard]] bool stores_stream(const Method* method);

/// The cache whose bytes store_cache() gave for the same model and method; what it holds has the same bits as what the
/// method leaves in memory, and the prompt's next token follows. Throws UserError on bytes that are cut or name another
/// shape.
[[nodiscard]] KvCache restore_cache(const Transformer& model, const ModelFacts& facts, const Method* method,
                                    std::span<const std::byte> bytes);
/// Notes that so many bytes lay beside a cache while it was made of them: the peak of its ledger has both.
void count_beside(const KvCache& cache, int64_t bytes);

}  // namespace kvarena
