#pragma once
// The part of a cache that a method is handed: layers that it acts on, and of these what later tokens see.

#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/method/method.h"

namespace kvarena {

/// The layers of a cache that a method acts on (LayerChoice). Contexts refer to it.
class ActedLayers {
 public:
  /// Throws UserError where there is none.
  ActedLayers(const Method& method, const KvCache& cache);

  [[nodiscard]] bool holds(int64_t layer) const { return held_[static_cast<size_t>(layer)]; }
  /// A layer as the method is handed it at the end of a prompt of so many tokens.
  [[nodiscard]] LayerContext context(KvCache& cache, int64_t layer, int64_t prompt_tokens, const ModelFacts* model,
                                     Activity& activity) const;
  /// All layers that it acts on, as above.
  [[nodiscard]] std::vector<LayerContext> contexts(KvCache& cache, int64_t prompt_tokens, const ModelFacts* model,
                                                   Activity& activity) const;

  /// Layers without a window, and with one; of a method that has no choice all are of the first kind.
  [[nodiscard]] const std::vector<int64_t>& full() const { return full_; }
  [[nodiscard]] const std::vector<int64_t>& sliding() const { return sliding_; }

 private:
  std::vector<int64_t> full_, sliding_;
  std::vector<bool> held_;  // [layers]
};

/// Has the method compress a prompt's layers that it acts on, each kind by itself, and releases what no later token
/// sees of the others. Of layers with a window the method is handed the entries that the next token sees.
void compress_layers(const Method& method, KvCache& cache, const Prefill& prompt, Activity& activity);
/// Compresses one of these layers, of a method that compresses by layer.
void compress_layer(const Method& method, LayerContext layer, const LayerObservations& seen);

}  // namespace kvarena
