#include "harness/cache/indexed_segment.h"
#include "harness/method/retriever.h"

namespace kvarena {

void RetrievalMethod::parameters(ParameterVisitor& p) {
  budget_.parameters(p);
  retriever_->parameters(p);
}

void RetrievalMethod::check(const std::string& place, std::vector<std::string>& problems) const {
  budget_.check(place, problems);
  retriever_->check(place, problems);
}

void RetrievalMethod::update_index(LayerContext& layer) const {
  LayerCache& cache = layer.cache;
  if (!cache.index) cache.index = retriever_->make_index(cache.shape(), cache.ledger());
  retriever_->extend(*cache.index, cache.tail());
  cache.index->entries = cache.tail().entries(0);
}

void RetrievalMethod::compress(LayerContext& layer, const LayerObservations& /*seen*/) const {
  if (!retriever_->dense(layer.layer)) update_index(layer);
}

void RetrievalMethod::select(LayerContext& layer, const LayerQueries& queries) const {
  if (retriever_->dense(layer.layer)) return;
  update_index(layer);
  LayerCache& cache = layer.cache;
  const int64_t budget = budget_.capacity(layer.prompt_tokens, cache.shape(), layer.layers);
  const int64_t n = cache.tail().entries(0);
  if (queries.q_len > 1 || n <= budget || budget_.unlimited()) return;

  Selection selected = retriever_->select(*cache.index, cache.tail(), queries, budget);
  for (const auto& list : selected) layer.activity.entries_skipped += n - static_cast<int64_t>(list.size());
  cache.view = std::make_unique<IndexedSegment>(cache.tail(), std::move(selected), cache.ledger());
}

}  // namespace kvarena
