#include "harness/cache/checkpoint.h"

#include <utility>

#include "harness/core/error.h"

namespace kvarena {

CacheCheckpoint::CacheCheckpoint(KvCache& cache) : CacheCheckpoint(cache, cache.ledger) {}

CacheCheckpoint::CacheCheckpoint(KvCache& cache, LedgerPtr own)
    : cache_(&cache), ledger_(std::move(own)), length_(cache.length), index_(clone_index(cache.index, ledger_)) {
  for (LayerCache& layer : cache.layers) {
    Layer& marked = layers_.emplace_back();
    marked.index = clone_index(layer.index, ledger_);
    for (const auto& segment : layer.segments()) {
      segment->mark(ledger_);
      marked.segments.push_back(segment.get());
    }
  }
}

CacheCheckpoint::~CacheCheckpoint() {
  if (cache_ == nullptr) return;
  for (LayerCache& layer : cache_->layers) {
    for (const auto& segment : layer.segments()) segment->unmark();
  }
}

void CacheCheckpoint::rewind() {
  KVARENA_ASSERT(cache_ != nullptr, "a cache goes back once");
  const auto counted_again = [this](std::unique_ptr<LayerIndex> index) {
    return ledger_ == cache_->ledger ? std::move(index) : clone_index(index, cache_->ledger);
  };
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerCache& layer = cache_->layers[i];
    layer.keep_segments(layers_[i].segments);
    for (const auto& segment : layer.segments()) segment->rewind();
    layer.index = counted_again(std::move(layers_[i].index));
  }
  cache_->index = counted_again(std::move(index_));
  cache_->length = length_;
  cache_ = nullptr;
}

int64_t CacheCheckpoint::bytes() const {
  int64_t total = index_ ? index_->bytes() : 0;
  for (const Layer& layer : layers_) total += layer.index ? layer.index->bytes() : 0;
  return total;
}

}  // namespace kvarena
