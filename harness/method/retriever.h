#pragma once
// Retrieval: everything stays in the cache, each step attends to the entries that matter for its query.

#include <memory>
#include <vector>

#include "harness/method/budget.h"
#include "harness/method/method.h"
#include "harness/method/registry.h"

namespace kvarena {

/// Selected entries, ascending indices into the layer's tail: one list a kv head, or one a query head.
using Selection = std::vector<std::vector<int32_t>>;

class Retriever {
 public:
  virtual ~Retriever() = default;

  /// Parameters beside the budget of entries a step attends to, which the framework declares.
  virtual void parameters(ParameterVisitor& /*p*/) {}
  virtual void check(const std::string& /*place*/, std::vector<std::string>& /*problems*/) const {}

  /// An empty index for a layer; it is extended as entries arrive.
  [[nodiscard]] virtual std::unique_ptr<LayerIndex> make_index(const LayerShape& shape,
                                                               const LedgerPtr& ledger) const = 0;
  /// Brings the index up to date with entries [index.entries, entries.entries(0)); the framework then counts them in.
  virtual void extend(LayerIndex& index, const EntrySegment& entries) const = 0;
  /// The entries that a single query (queries.q_len == 1) attends to: about `budget` of each head's.
  [[nodiscard]] virtual Selection select(const LayerIndex& index, const EntrySegment& entries,
                                         const LayerQueries& queries, int64_t budget) const = 0;
  /// Layers that always attend to everything.
  [[nodiscard]] virtual bool dense(int64_t /*layer*/) const { return false; }
};

/// Passes with more than one query, and steps whose entries fit the budget, attend to everything.
class RetrievalMethod final : public Method {
 public:
  explicit RetrievalMethod(std::unique_ptr<Retriever> retriever) : retriever_(std::move(retriever)) {}

  void parameters(ParameterVisitor& p) override;
  void check(const std::string& place, std::vector<std::string>& problems) const override;
  void compress(LayerContext& layer, const LayerObservations& seen) const override;
  void select(LayerContext& layer, const LayerQueries& queries) const override;

 private:
  void update_index(LayerContext& layer) const;

  std::unique_ptr<Retriever> retriever_;
  Budget budget_;
};

#define KVARENA_RETRIEVER(type, ...)                                                                              \
  KVARENA_REGISTER(                                                                                               \
      type, ::kvarena::Family::retrieval,                                                                         \
      std::unique_ptr<::kvarena::Method>(std::make_unique<::kvarena::RetrievalMethod>(std::make_unique<type>())), \
      __VA_ARGS__)

}  // namespace kvarena
