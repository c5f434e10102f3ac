#pragma once
// What a dropping method remembers of a layer beside the numbers of its entries; counted and cloned with the cache.

#include "harness/cache/layer_cache.h"

namespace kvarena {

struct DroppingState final : public LayerIndex {
  explicit DroppingState(const LedgerPtr& ledger)
      : capacities(LedgerAllocator<int64_t>(ledger)), queries(LedgerAllocator<float>(ledger)) {}

  LedgerVector<int64_t> capacities;  // [kv_heads], entries a head may hold while decoding
  int64_t settled = 0;               // entries of head 0 when it was compressed last
  LedgerVector<float> queries;       // [rows, q_heads, head_dim], the newest decode queries, oldest first

  [[nodiscard]] int64_t bytes() const override {
    return static_cast<int64_t>(capacities.capacity() * sizeof(int64_t) + queries.capacity() * sizeof(float));
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<DroppingState>(ledger);
    copy->capacities.assign(capacities.begin(), capacities.end());
    copy->settled = settled;
    copy->queries.assign(queries.begin(), queries.end());
    return copy;
  }
};

}  // namespace kvarena
