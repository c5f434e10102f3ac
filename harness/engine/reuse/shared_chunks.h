#pragma once
// Cells of chunks that requests share in place of copies.

#include "harness/engine/reuse/chunk_store.h"
#include "harness/method/reuser.h"

namespace kvarena {

/// Replaces what a dense cache copied of `parts` by the chunks' own cells (MovedSegment): of each part those behind its
/// last token among `computed`, ascending. chunks [parts]. Layers with a window keep their copies, which leave it.
void share_chunks(const Transformer& model, std::span<const PromptPart> parts, std::span<const ChunkCache> chunks,
                  std::span<const int32_t> computed, KvCache& cache);

}  // namespace kvarena
