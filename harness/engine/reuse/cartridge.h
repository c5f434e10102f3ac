#pragma once
// Entries that were trained to stand for a context, out of an artifact.

#include "harness/engine/reuse/chunk_store.h"
#include "harness/method/reuser.h"

namespace kvarena {

/// The key of the reuser's artifact among a model's chunks.
[[nodiscard]] std::string cartridge_key(const Transformer& model, const Reuser& reuser);

/// Reads the reuser's artifact, entries at positions 0, 1, ... Throws UserError when there is none, or when it was made
/// for another model.
[[nodiscard]] ChunkCache read_cartridge(const Transformer& model, const Reuser& reuser, const ModelFacts& facts);

/// Fills an empty cache with the entries in front of position `end`, which the next token gets: queries are as far from
/// them as if these began the prompt.
void append_cartridge(const Transformer& model, const KvCache& entries, int64_t end, KvCache& cache);

}  // namespace kvarena
