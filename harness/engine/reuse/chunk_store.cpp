#include "harness/engine/reuse/chunk_store.h"

#include <fmt/format.h>

#include "harness/core/files.h"
#include "harness/engine/reuse/token_run.h"

namespace kvarena {

std::string chunk_key(const Transformer& model, std::span<const int32_t> tokens) {
  const TransformerOptions& options = model.options();
  const int weights = options.weights ? static_cast<int>(*options.weights) : -1;
  std::string text = fmt::format("{} {} {} {}\n", model.fingerprint(), weights, static_cast<int>(options.cache),
                                 static_cast<int>(options.arithmetic));
  text.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  return sha256(text);
}

ChunkCache compute_chunk(Transformer& model, std::span<const int32_t> tokens) {
  TokenRun run(model, tokens);
  while (run.remaining() > 0) {
    const SequencePass pass = run.next_pass();
    (void)model.forward({&pass, 1});
  }
  return std::make_shared<const KvCache>(run.take());
}

ChunkCache MemoryChunkStore::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = chunks_.find(key);
  if (it == chunks_.end()) return nullptr;
  it->second.used = ++clock_;
  return it->second.chunk;
}

void MemoryChunkStore::put(const std::string& key, ChunkCache chunk) {
  const std::lock_guard lock(mutex_);
  const auto [place, added] = chunks_.try_emplace(key);
  place->second.used = ++clock_;
  if (!added) return;
  place->second.bytes = chunk->bytes();
  place->second.chunk = std::move(chunk);
  bytes_ += place->second.bytes;
  forget_beyond_capacity();
}

/// The newest chunk stays: whoever put it is about to hold it.
void MemoryChunkStore::forget_beyond_capacity() {
  while (bytes_ > capacity_) {
    auto oldest = chunks_.end();
    for (auto it = chunks_.begin(); it != chunks_.end(); ++it) {
      const Held& held = it->second;
      if (held.used == clock_ || held.chunk.use_count() > 1) continue;
      if (oldest == chunks_.end() || held.used < oldest->second.used) oldest = it;
    }
    if (oldest == chunks_.end()) return;
    bytes_ -= oldest->second.bytes;
    chunks_.erase(oldest);
  }
}

int64_t MemoryChunkStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace kvarena
