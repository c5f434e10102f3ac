#pragma once
// A stored context's cache as attention reads it, on a tier of such.

#include <mutex>

#include "harness/engine/stored/stored_cache.h"
#include "harness/storage/context_store.h"

namespace kvarena::stored {

/// Requests begin with clones of it, which take memory of their own for the newest entries alone. Bytes at rest of a
/// codec lie beside it, counted, since the codec would not give the same again.
class ReadyCache final : public storage::ReadyContext {
 public:
  /// Restores what store_cache() gave of the form's method, divided.
  ReadyCache(const Transformer& model, const ModelFacts& facts, const Method* method, std::span<const std::byte> bytes);

  [[nodiscard]] int64_t bytes() const override { return cache_.bytes() + std::ssize(stream_); }
  [[nodiscard]] std::vector<std::byte> stored() const override;
  /// A clone to begin with. On a model with a device the copy of a cache that keeps every token goes up and stays
  /// there, and the clone's is made of it. On any thread.
  [[nodiscard]] KvCache begin(Transformer& model) const;

 private:
  mutable std::mutex cloning_;
  mutable KvCache cache_;  // of which a copy may lie on a device
  bool whole_;             // every layer and head has an entry of each token
  std::vector<std::byte> stream_;
};

}  // namespace kvarena::stored
