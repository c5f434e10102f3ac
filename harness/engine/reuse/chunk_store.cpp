#include "harness/engine/reuse/chunk_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/files.h"

namespace kvarena {

std::string chunk_key(const Transformer& model, std::span<const int32_t> tokens) {
  std::string text = fmt::format("{} {} {}\n", model.fingerprint(), static_cast<int>(model.options().weights),
                                 static_cast<int>(model.options().cache));
  text.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  return sha256(text);
}

ChunkCache compute_chunk(Transformer& model, std::span<const int32_t> tokens) {
  constexpr size_t at_once = 512;  // bounds activations
  auto cache = std::make_shared<KvCache>(model.make_cache());
  cache->prompt_length = static_cast<int64_t>(tokens.size());
  for (size_t done = 0; done < tokens.size(); done += at_once) {
    const SequencePass pass{.tokens = tokens.subspan(done, std::min(at_once, tokens.size() - done)),
                            .cache = cache.get(),
                            .logits = LogitsRows::none};
    (void)model.forward({&pass, 1});
  }
  return cache;
}

bool MemoryChunkStore::contains(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return chunks_.contains(key);
}

ChunkCache MemoryChunkStore::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = chunks_.find(key);
  return it == chunks_.end() ? nullptr : it->second;
}

void MemoryChunkStore::put(const std::string& key, ChunkCache chunk) {
  const std::lock_guard lock(mutex_);
  chunks_.insert_or_assign(key, std::move(chunk));
}

int64_t MemoryChunkStore::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [key, chunk] : chunks_) total += chunk->bytes();
  return total;
}

}  // namespace kvarena
