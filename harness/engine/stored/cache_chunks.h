#pragma once
// A context's cache in chunks of some tokens in some layers, of which requests read those that they need.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/method/eviction.h"

namespace kvarena::stored {

/// Part of a context: whole cells of 16 entries in each layer, but for the context's end.
struct CacheChunk {
  int64_t first_layer = 0;
  int64_t layers = 0;
  int64_t first_token = 0;
  int64_t tokens = 0;
  double importance = 0;  // share of the tokens that requests need
};

/// Division of a context.
struct ChunkedContext {
  std::vector<CacheChunk> chunks;              // ascending tokens in each layer
  std::vector<std::vector<int32_t>> attended;  // [layers] tokens that requests attend to, ascending
};

/// Divides a prompt's cache as `chunking` says, which was observed with what that needs.
[[nodiscard]] ChunkedContext divide(const Prefill& prompt, const Chunking& chunking);

/// Writes a chunk of an uncompressed cache.
[[nodiscard]] std::vector<std::byte> store_chunk(const KvCache& cache, const CacheChunk& chunk);

/// A cache that is put together from the chunks that requests read, in their order, as they come.
class ChunkedCache {
 public:
  /// `context` must outlive it.
  ChunkedCache(const Transformer& model, const ChunkedContext& context);

  /// Takes what store_chunk() wrote of a chunk. Throws UserError on bytes that are cut.
  void add(const CacheChunk& chunk, std::span<const std::byte> bytes);
  /// The cache of a context of `tokens` tokens, all of whose chunks to read were added: the entries that are attended
  /// to, with the bits and positions that they had. It is the full cache, bit for bit, where all are.
  [[nodiscard]] KvCache finish(int64_t tokens);

 private:
  /// A layer's entries so far, of each head as EntrySegment::save() writes them.
  struct Layer {
    std::unique_ptr<std::byte[]> bytes;
    int64_t entries = 0;  // that it has room for
    std::vector<int32_t> positions;
  };
  const ChunkedContext* context_;
  KvCache cache_;
  std::vector<Layer> layers_;
};

}  // namespace kvarena::stored
