#include "harness/cache/checkpoint.h"

#include <utility>

#include "harness/core/error.h"

namespace kvarena {

CacheCheckpoint::CacheCheckpoint(KvCache& cache)
    : cache_(&cache), length_(cache.length), index_(clone_index(cache.index, cache.ledger)) {
  for (LayerCache& layer : cache.layers) {
    Layer& own = layers_.emplace_back();
    own.index = clone_index(layer.index, cache.ledger);
    for (const auto& segment : layer.segments()) {
      segment->mark();
      own.segments.push_back(segment.get());
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
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerCache& layer = cache_->layers[i];
    layer.keep_segments(layers_[i].segments);
    for (const auto& segment : layer.segments()) segment->rewind();
    layer.index = std::move(layers_[i].index);
  }
  cache_->index = std::move(index_);
  cache_->length = length_;
  cache_ = nullptr;
}

int64_t CacheCheckpoint::bytes() const {
  int64_t total = index_ ? index_->bytes() : 0;
  for (const Layer& layer : layers_) total += layer.index ? layer.index->bytes() : 0;
  return total;
}

}  // namespace kvarena
