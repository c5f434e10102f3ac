#pragma once
// Stores that keep the entries of chunks between requests.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "harness/model/transformer.h"

namespace kvarena {

/// Entries of a chunk: a run of tokens computed by itself, at positions 0, 1, ...; never changed.
using ChunkCache = std::shared_ptr<const KvCache>;

/// Hashes what a chunk's entries depend on, weights, stored forms and tokens: SHA-256, hexadecimal. No other model or
/// text has the same key.
[[nodiscard]] std::string chunk_key(const Transformer& model, std::span<const int32_t> tokens);

/// Computes the entries of `tokens` by themselves.
[[nodiscard]] ChunkCache compute_chunk(Transformer& model, std::span<const int32_t> tokens);

/// Chunks by their keys. Thread-safe.
class ChunkStore {
 public:
  virtual ~ChunkStore() = default;
  /// Keeps the chunk from being forgotten as long as the result lives, without touching its entries. Null when it is
  /// not there.
  [[nodiscard]] virtual std::shared_ptr<const void> hold(const std::string& key) = 0;
  /// Returns the chunk, null when it is not there.
  [[nodiscard]] virtual ChunkCache find(const std::string& key) = 0;
  /// Adds a chunk. One of the same key that is there stays in its place, for others hold it.
  virtual void put(const std::string& key, ChunkCache chunk) = 0;
};

/// Keeps chunks in memory.
class MemoryChunkStore final : public ChunkStore {
 public:
  /// Holds at most `capacity_bytes`: what is put makes the store forget the least recently used of the others beyond
  /// them that nobody holds.
  explicit MemoryChunkStore(int64_t capacity_bytes = std::numeric_limits<int64_t>::max()) : capacity_(capacity_bytes) {}

  [[nodiscard]] std::shared_ptr<const void> hold(const std::string& key) override { return find(key); }
  [[nodiscard]] ChunkCache find(const std::string& key) override;
  void put(const std::string& key, ChunkCache chunk) override;
  /// Bytes of all chunks.
  [[nodiscard]] int64_t bytes() const;

 private:
  struct Held {
    ChunkCache chunk;
    int64_t bytes = 0;
    int64_t used = 0;  // when, by clock_
  };
  void forget_beyond_capacity();

  int64_t capacity_;
  mutable std::mutex mutex_;
  std::map<std::string, Held> chunks_;  // guarded by mutex_, as what follows
  int64_t bytes_ = 0;
  int64_t clock_ = 0;
};

}  // namespace kvarena
