#pragma once
// Dropping: a plugin says how important entries are; the framework keeps the best within the budget.
//
//   class Knorm final : public Scorer {
//    public:
//     at::Tensor score(const LayerView& layer) const override { return layer.keys().norm(2, -1).neg(); }
//   };
//   KVARENA_SCORER(Knorm, {.name = "knorm", .title = "L2 norm", .summary = "...", .paper = "arXiv:2406.11430"});

#include <memory>

#include "harness/method/budget.h"
#include "harness/method/layer_view.h"
#include "harness/method/method.h"
#include "harness/method/registry.h"
#include "harness/method/selection.h"

namespace kvarena {

class Scorer {
 public:
  virtual ~Scorer() = default;

  /// Parameters beside the budget, which the framework declares.
  virtual void parameters(ParameterVisitor& /*p*/) {}
  virtual void check(const std::string& /*place*/, std::vector<std::string>& /*problems*/) const {}
  [[nodiscard]] virtual Needs needs() const { return {}; }

  /// Importance of every entry, [kv_heads, n] float32; larger is kept, ties keep the lower index. Must not depend on
  /// state outside `layer`. NaN is an error that names the method and the layer.
  [[nodiscard]] virtual at::Tensor score(const LayerView& layer) const = 0;

  /// Entries kept whatever their score, of a budget of `budget` entries. When both together exceed the budget, recent
  /// entries give way, then sinks.
  [[nodiscard]] virtual Protection protect(int64_t /*budget*/) const { return {}; }

  /// Whether entries are also evicted while decoding, back to the budget fixed at the end of the prompt.
  [[nodiscard]] virtual bool evicts_while_decoding() const { return false; }
};

/// A scorer with a budget: after the prompt each head of each layer keeps its best entries; the others' memory is
/// released.
class DroppingMethod final : public Method {
 public:
  explicit DroppingMethod(std::string name, std::unique_ptr<Scorer> scorer);

  void parameters(ParameterVisitor& p) override;
  void check(const std::string& place, std::vector<std::string>& problems) const override;
  [[nodiscard]] Needs needs() const override { return scorer_->needs(); }
  void compress(LayerContext& layer, const LayerObservations& seen) const override;
  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override;
  void settle(LayerContext& layer) const override;

 private:
  void keep_best(LayerContext& layer, const LayerView& view, int64_t budget) const;

  std::string name_;
  std::unique_ptr<Scorer> scorer_;
  Budget budget_;
};

#define KVARENA_SCORER(type, ...)                                                                  \
  KVARENA_REGISTER(type, ::kvarena::Family::compression,                                           \
                   std::unique_ptr<::kvarena::Method>(std::make_unique<::kvarena::DroppingMethod>( \
                       (::kvarena::MethodInfo __VA_ARGS__).name, std::make_unique<type>())),       \
                   __VA_ARGS__)

}  // namespace kvarena
