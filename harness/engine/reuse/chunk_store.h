#pragma once
// Stores that keep the entries of chunks between requests.

#include <cstdint>
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
  /// Whether the chunk is held, without touching its entries.
  [[nodiscard]] virtual bool contains(const std::string& key) const = 0;
  /// Returns the chunk, null when it is not held.
  [[nodiscard]] virtual ChunkCache find(const std::string& key) = 0;
  virtual void put(const std::string& key, ChunkCache chunk) = 0;
};

/// Keeps every chunk in memory.
class MemoryChunkStore final : public ChunkStore {
 public:
  [[nodiscard]] bool contains(const std::string& key) const override;
  [[nodiscard]] ChunkCache find(const std::string& key) override;
  void put(const std::string& key, ChunkCache chunk) override;
  /// Bytes of all chunks held.
  [[nodiscard]] int64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, ChunkCache> chunks_;  // guarded by mutex_
};

}  // namespace kvarena
