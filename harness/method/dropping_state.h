#pragma once
// State of a dropping method in one layer, beside the scores of entries; counted and cloned with the cache.

#include "harness/cache/layer_cache.h"
#include "harness/method/renumber.h"

namespace kvarena {

struct DroppingState final : public LayerIndex {
  explicit DroppingState(const LedgerPtr& ledger)
      : capacities(LedgerAllocator<int64_t>(ledger)), queries(LedgerAllocator<float>(ledger)), pre_rotation(ledger) {}
  DroppingState(const DroppingState& from, const LedgerPtr& ledger)
      : capacities(from.capacities.begin(), from.capacities.end(), LedgerAllocator<int64_t>(ledger)),
        compressed(from.compressed),
        queries(from.queries.begin(), from.queries.end(), LedgerAllocator<float>(ledger)),
        pre_rotation(from.pre_rotation, ledger) {}

  LedgerVector<int64_t> capacities;  // [kv_heads], entries a head may hold while decoding
  int64_t compressed = 0;            // entries of head 0 when it was compressed last
  LedgerVector<float> queries;       // [rows, q_heads, head_dim], the newest decode queries, oldest first
  PreRotationKeys pre_rotation;      // where positions are renumbered

  [[nodiscard]] int64_t bytes() const override {
    return static_cast<int64_t>(capacities.capacity() * sizeof(int64_t) + queries.capacity() * sizeof(float)) +
           pre_rotation.bytes();
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<DroppingState>(*this, ledger);
  }
};

}  // namespace kvarena
