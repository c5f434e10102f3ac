#include <algorithm>

#include "harness/core/error.h"
#include "harness/method/wrapping_scorer.h"

namespace kvarena {
namespace {

/// Eviction behind tokens that were trained to restore what leaves. Before entries are dropped, R tokens with
/// embeddings of their own are read once behind the full prompt, under a low-rank adapter; their entries stay in every
/// layer and head, within the budget, and another method's scores choose the rest: n keep - R a head. The adapter is
/// active in that pass alone. Entries of the tokens have the rotations of positions n .. n + R - 1, which what follows
/// the prompt takes as well. `weights`: a folder with the authors' adapter (adapter_config.json,
/// adapter_model.safetensors, restore_embeddings.safetensors), applied to the weights of the model that runs; it is
/// held beside them, in the model's own stored form. arXiv:2608.01247, as kvpress's RestoreKVPress has it.
class RestoreKv final : public WrappingScorer {
 public:
  RestoreKv() : WrappingScorer(R"({"name":"kvzip","form":"kvpress"})") {}

  void parameters(ParameterVisitor& p) override {
    WrappingScorer::parameters(p);
    p("weights", weights_)
        .required()
        .doc("the adapter: a folder of KVARENA_HOME/models, a name on Hugging Face's hub, or a folder");
  }
  Needs needs() const override {
    Needs needs = WrappingScorer::needs();
    needs.restorations = {weights_};
    return needs;
  }
  std::string default_rule() const override { return R"({"name":"global"})"; }

  int64_t added_entries(const LayerObservations& seen) const override { return of(seen).tokens; }
  void add_entries(LayerContext& layer, const LayerObservations& seen) const override {
    const LayerShape& shape = layer.cache.shape();
    const RestoredEntries& restored = of(seen);
    const std::vector<int32_t> nowhere(static_cast<size_t>(restored.tokens), kNoPosition);
    auto entries = std::make_unique<EntrySegment>(shape, layer.cache.ledger());
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t at = head * shape.head_dim;
      entries->append_to_head(head, nowhere, &restored.keys[at], &restored.values[at], shape.kv_heads * shape.head_dim);
    }
    layer.cache.insert_before_tail(std::move(entries));
  }

 private:
  const RestoredEntries& of(const LayerObservations& seen) const {
    const auto found = std::ranges::find(seen.restorations, weights_, &RestoredEntries::adapter);
    KVARENA_ASSERT(found != seen.restorations.end(), "a prompt that was read without the adapter");
    return *found;
  }

  std::string weights_;
};

KVARENA_SCORER(RestoreKv,
               {.name = "restorekv",
                .title = "RestoreKV",
                .summary = "Keeps trained tokens that read the whole prompt, and the best entries beside them.",
                .paper = "arXiv:2608.01247"});

}  // namespace
}  // namespace kvarena
