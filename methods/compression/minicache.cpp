#include "harness/cache/merged_segment.h"
#include "harness/method/registry.h"

namespace kvarena {
namespace {

/// Neighbouring layers share the directions of their entries.  In the deeper half of the model, pairs of layers store
/// of each token one key and one value a head: the direction between the two layers' own by spherical interpolation, t
/// of the way from the lower to the upper one, and each layer's length. The `retained` share of the prompt's tokens
/// whose directions differ most, of keys and of values, is kept as it is, and so are generated tokens that differ as
/// much. Merging follows the pass that made the entries: the prompt's attention is exact. Tokens keep their positions,
/// which are the same in both layers. Liu, Liu, Pan, He, Haffari, Zhuang 2024, arXiv:2405.14366, section 3; the authors
/// published no code. Retention counts tokens by their angle, as KVCache-Factory's primitives do; the paper places a
/// threshold between the smallest and the largest distance. Pairs begin at `start_layer` (paper: the middle); the
/// paper's 4-bit codes are not part of this. Neighbours are those among the layers that it acts on.
class MiniCache final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    p("start_layer", start_layer_).min(0).doc("first layer of the first pair, of those acted on; absent: half of them");
    p("interpolation", rule_.interpolation).min(0).max(1).doc("t: 0 is the lower layer's direction, 1 the upper one's");
    p("retained", rule_.retained).min(0).max(1).doc("share of the entries kept as they are; 1 merges nothing");
  }

  HookAccess reach() const override { return HookAccess::rows; }

  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> /*seen*/) const override {
    for (size_t lower = 0; lower + 1 < layers.size(); ++lower) {
      if (!begins_pair(layers[lower])) continue;
      LayerCache& below = layers[lower].cache;
      LayerCache& above = layers[lower + 1].cache;
      const auto pair = std::make_shared<MergedPair>(below.shape(), rule_, below.ledger());
      below.insert_before_tail(std::make_unique<MergedSegment>(pair, /*upper=*/false));
      above.insert_before_tail(std::make_unique<MergedSegment>(pair, /*upper=*/true));
      merge(layers[lower + 1], below, above);
    }
  }

  /// The upper layer's turn comes last: both have the pass's entries then.
  void after_append(LayerContext& layer) const override {
    if (layer.rank() == 0 || layer.request == nullptr) return;
    LayerContext lower = layer;
    lower.layer = layer.peers.empty() ? layer.layer - 1 : layer.peers[static_cast<size_t>(layer.rank() - 1)];
    if (begins_pair(lower)) merge(layer, layer.request->layers[lower.layer], layer.cache);
  }

 private:
  [[nodiscard]] bool begins_pair(const LayerContext& layer) const {
    const int64_t rank = layer.rank(), start = start_layer_.value_or(layer.ranks() / 2);
    return rule_.retained < 1 && rank >= start && (rank - start) % 2 == 0 && rank + 1 < layer.ranks();
  }

  static void merge(LayerContext& layer, LayerCache& below, LayerCache& above) {
    layer.activity.entries_packed += 2 * below.tail().entries(0) * below.shape().kv_heads;
    static_cast<MergedSegment&>(*below.segments().front()).pair().take(below.tail(), above.tail());
  }

  std::optional<int64_t> start_layer_;
  MergeRule rule_;
};

KVARENA_METHOD(MiniCache, Family::compression,
               {.name = "minicache",
                .title = "MiniCache",
                .summary = "Pairs of layers store one direction for both, and each its lengths.",
                .paper = "arXiv:2405.14366, section 3"});

}  // namespace
}  // namespace kvarena
