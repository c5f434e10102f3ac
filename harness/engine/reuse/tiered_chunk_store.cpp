#include "harness/engine/reuse/tiered_chunk_store.h"

namespace kvarena {

TieredChunkStore::TieredChunkStore(storage::HierarchyPtr machine, Tier tier)
    : machine_(std::move(machine)), tier_(tier) {
  (void)machine_->storage(tier_);
}

bool TieredChunkStore::contains(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return chunks_.contains(key);
}

std::shared_ptr<const TieredChunkStore::Chunk> TieredChunkStore::chunk_of(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = chunks_.find(key);
  return it == chunks_.end() ? nullptr : it->second;
}

ChunkCache TieredChunkStore::find(const std::string& key) {
  const std::shared_ptr<const Chunk> chunk = chunk_of(key);
  if (chunk == nullptr) return nullptr;
  auto cache = std::make_shared<KvCache>(std::span<const LayerShape>(chunk->shapes));
  cache->prompt_length = cache->length = chunk->tokens;
  std::vector<storage::Transfer> coming;
  for (size_t layer = 0; layer < chunk->layers.size(); ++layer)
    coming.push_back(chunk->layers[layer]->load(cache->layers[layer].tail()));
  for (storage::Transfer& transfer : coming) transfer.wait();
  return cache;
}

void TieredChunkStore::put(const std::string& key, ChunkCache chunk) {
  auto held = std::make_shared<Chunk>();
  held->tokens = chunk->length;
  std::vector<storage::Transfer> leaving;
  for (const LayerCache& layer : chunk->layers) {
    held->shapes.push_back(layer.shape());
    held->layers.push_back(std::make_unique<storage::CellStore>(layer.shape(), ledger_, machine_, tier_));
    leaving.push_back(held->layers.back()->write(layer.tail(), 0));
  }
  for (storage::Transfer& transfer : leaving) transfer.wait();
  const std::lock_guard lock(mutex_);
  chunks_.insert_or_assign(key, std::move(held));
}

int64_t TieredChunkStore::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [key, chunk] : chunks_) {
    for (const auto& layer : chunk->layers) total += layer->bytes();
  }
  return total;
}

}  // namespace kvarena
