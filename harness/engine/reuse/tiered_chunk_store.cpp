#include "harness/engine/reuse/tiered_chunk_store.h"

#include <numeric>

namespace kvarena {
namespace {

/// A layer's rows on their way.
struct Arriving {
  std::vector<std::byte> rows;  // [kv_heads, tokens, key | value]
  storage::Transfer transfer;   // dies before the rows
};

Arriving load_all(storage::EntryStore& entries, const LayerShape& shape, int64_t tokens) {
  std::vector<int32_t> positions(static_cast<size_t>(tokens));
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<std::vector<int32_t>> of_heads(static_cast<size_t>(shape.kv_heads), positions);
  Arriving arriving{.rows = std::vector<std::byte>(static_cast<size_t>(shape.kv_heads * tokens * entries.row_bytes())),
                    .transfer = {}};
  arriving.transfer = entries.load(of_heads, arriving.rows.data());
  return arriving;
}

/// Rows as they arrived, as the entries of a dense tail from position 0.
void append_all(const Arriving& arrived, int64_t tokens, LayerCache& layer) {
  const LayerShape& shape = layer.shape();
  const int64_t d = shape.head_dim, stride = shape.kv_heads * d;
  std::vector<float> keys(static_cast<size_t>(tokens * stride)), values(keys.size());
  int64_t from = 0;
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    for (int64_t token = 0; token < tokens; ++token) {
      float* const sides[] = {&keys[token * stride + head * d], &values[token * stride + head * d]};
      for (float* side : sides) {
        for (int64_t c = 0; c < d; ++c) side[c] = kernels::load_element(arrived.rows.data(), shape.dtype, from++);
      }
    }
  }
  layer.tail().append(keys.data(), values.data(), tokens, stride, 0);
}

}  // namespace

TieredChunkStore::TieredChunkStore(storage::HierarchyPtr machine, Tier tier)
    : machine_(std::move(machine)), tier_(tier) {
  (void)machine_->storage(tier_);
}

bool TieredChunkStore::contains(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return chunks_.contains(key);
}

ChunkCache TieredChunkStore::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = chunks_.find(key);
  if (it == chunks_.end()) return nullptr;
  const Chunk& chunk = it->second;
  std::vector<LayerShape> shapes;
  std::vector<Arriving> arriving;
  for (const Layer& layer : chunk.layers) {
    shapes.push_back(layer.shape);
    arriving.push_back(load_all(*layer.entries, layer.shape, chunk.tokens));
  }
  auto cache = std::make_shared<KvCache>(std::span<const LayerShape>(shapes));
  cache->prompt_length = cache->length = chunk.tokens;
  for (size_t layer = 0; layer < arriving.size(); ++layer) {
    arriving[layer].transfer.wait();
    append_all(arriving[layer], chunk.tokens, cache->layers[layer]);
  }
  return cache;
}

void TieredChunkStore::put(const std::string& key, ChunkCache chunk) {
  const std::lock_guard lock(mutex_);
  Chunk held{.tokens = chunk->length, .layers = {}};
  for (const LayerCache& layer : chunk->layers) {
    Layer& to = held.layers.emplace_back(
        Layer{layer.shape(), std::make_unique<storage::EntryStore>(layer.shape(), ledger_, machine_, tier_)});
    to.entries->append(layer.tail(), 0, chunk->length);
  }
  for (const Layer& layer : held.layers) layer.entries->settle();
  chunks_.insert_or_assign(key, std::move(held));
}

int64_t TieredChunkStore::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [key, chunk] : chunks_) {
    for (const Layer& layer : chunk.layers) {
      total += layer.shape.kv_heads * layer.entries->entries() * layer.entries->row_bytes();
    }
  }
  return total;
}

}  // namespace kvarena
