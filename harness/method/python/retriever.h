#pragma once
// Retrievers that are written in Python (python/kvarena/methods.py).

#include "harness/method/python/part.h"
#include "harness/method/retriever.h"

namespace kvarena {

/// Asks a Python process for a score of every entry at each step, by kv head or by query head.
class PythonRetriever final : public OfPython<Retriever> {
 public:
  PythonRetriever(PythonPart part, std::string name, int64_t dense_layers)
      : OfPython(std::move(part)), name_(std::move(name)), dense_layers_(dense_layers) {}

  [[nodiscard]] int64_t default_dense_layers() const override { return dense_layers_; }
  [[nodiscard]] Protection protect(int64_t budget) const override;
  [[nodiscard]] std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override;
  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& seen) const override;
  [[nodiscard]] Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                                 const Candidates& among) const override;

 private:
  std::string name_;
  int64_t dense_layers_;
};

}  // namespace kvarena
