#pragma once
// Entries that queries of a layer with a sliding window no longer see.

#include <cstdint>

#include "harness/cache/layer_cache.h"

namespace kvarena {

/// The oldest position that a query at `position` sees through a window (LayerShape::window, chunked); those behind it
/// see none before.
[[nodiscard]] int64_t oldest_seen(int64_t window, bool chunked, int64_t position);

/// Releases entries of a layer with a window that no query from position `length` on sees: whole chunks of attention
/// (kernels::kChunk) from the front, so that logits keep their bits. A layer stays as it is where a method keeps it:
/// ragged, in several segments, with an index or numbers beside its entries. Entries behind `length`, which may be
/// taken back, need not be there yet.
void release_unseen(LayerCache& layer, int64_t length);
/// In all layers, of the queries behind cache.length.
void release_unseen(KvCache& cache);

/// Bytes of a cache's layers with a window.
[[nodiscard]] int64_t sliding_bytes(const KvCache& cache);

}  // namespace kvarena
