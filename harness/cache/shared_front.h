#pragma once
// A division of a cache into what its clones share for good and what each of them grows.

#include "harness/cache/layer_cache.h"
#include "kernels/attention/attention.h"

namespace kvarena {

/// Moves the first `count` entries of a layer's tail, which is not ragged, into a segment of their own in front of it.
void set_front_apart(LayerCache& layer, int64_t count);

/// Moves all but each head's newest entries out of the tails into segments in front, so that a clone that grows takes
/// memory of its own for fewer than kernels::kChunk entries and what it appends. Attention cuts runs there anyway: no
/// bit changes. Tails with windows, whose entries leave, and with remembered numbers stay as they are.
void share_front(KvCache& cache);

/// A copy of a layer that others append to: of a single dense tail whole chunks stay shared for good, and what is
/// appended takes memory of its own. Other layers are clones.
[[nodiscard]] LayerCache growing_copy(const LayerCache& layer, const LedgerPtr& ledger);

}  // namespace kvarena
