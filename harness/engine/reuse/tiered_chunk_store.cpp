#include "harness/engine/reuse/tiered_chunk_store.h"

namespace kvarena {

TieredChunkStore::TieredChunkStore(storage::HierarchyPtr machine, Tier tier)
    : machine_(std::move(machine)), tier_(tier) {
  (void)machine_->storage(tier_);
}

std::shared_ptr<const TieredChunkStore::Chunk> TieredChunkStore::chunk_of(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = chunks_.find(key);
  return it == chunks_.end() ? nullptr : it->second;
}

ChunkCache TieredChunkStore::find(const std::string& key) {
  const std::shared_ptr<const Chunk> chunk = chunk_of(key);
  if (chunk == nullptr) return nullptr;
  std::vector<LayerShape> shapes;
  for (const storage::CellStore& layer : *chunk) shapes.push_back(layer.shape());
  auto cache = std::make_shared<KvCache>(std::span<const LayerShape>(shapes));
  cache->prompt_length = cache->length = chunk->front().entries();
  std::vector<storage::Transfer> coming;
  for (size_t layer = 0; layer < chunk->size(); ++layer)
    coming.push_back((*chunk)[layer].load(cache->layers[layer].tail()));
  for (storage::Transfer& transfer : coming) transfer.wait();
  return cache;
}

void TieredChunkStore::put(const std::string& key, ChunkCache chunk) {
  if (chunk_of(key) != nullptr) return;
  auto held = std::make_shared<Chunk>();
  std::vector<storage::Transfer> leaving;
  for (const LayerCache& layer : chunk->layers)
    leaving.push_back(held->emplace_back(layer.shape(), ledger_, machine_, tier_).write(layer.tail(), 0));
  for (storage::Transfer& transfer : leaving) transfer.wait();
  const std::lock_guard lock(mutex_);
  chunks_.try_emplace(key, std::move(held));
}

int64_t TieredChunkStore::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [key, chunk] : chunks_) {
    for (const storage::CellStore& layer : *chunk) total += layer.bytes();
  }
  return total;
}

}  // namespace kvarena
