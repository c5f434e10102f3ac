#pragma once
// Hooks of the engine: the observer of a prompt, and the adapter that lets a method act on decode passes.

#include <atomic>
#include <optional>
#include <vector>

#include "harness/cache/known_choice.h"
#include "harness/engine/session/acted_layers.h"
#include "harness/engine/session/query_moments.h"
#include "harness/method/method.h"

namespace kvarena {

/// Fills LayerObservations while a prompt is processed, chunk by chunk.
class PromptObserver final : public AttentionHooks, private kernels::AttentionReader {
 public:
  /// `model` outlives it.
  PromptObserver(const Needs& needs, int64_t prompt_tokens, int64_t layers, int64_t hidden_size,
                 const ModelFacts& model);

  [[nodiscard]] HookAccess reach() const override;
  [[nodiscard]] kernels::AttentionReader* reader(int64_t layer, const LayerCache& cache,
                                                 const LayerQueries& queries) override;
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override;
  [[nodiscard]] bool wants_hidden() const override { return needs_.hidden; }
  /// Gives what was seen of a layer, or of all, once the whole prompt went by there.
  [[nodiscard]] LayerObservations take(int64_t layer);
  [[nodiscard]] std::vector<LayerObservations> take();
  /// Time spent on it so far; for work that threads shared while they attended, their mean.
  [[nodiscard]] double seconds() const { return seconds_ + 1e-9 * static_cast<double>(reading_ns_); }

 private:
  [[nodiscard]] bool watches(const LayerShape& shape) const { return needs_.sliding || shape.window == 0; }
  void read(const kernels::ProbabilityRows& rows) override;
  [[nodiscard]] std::vector<kernels::QuerySum> only_sums() override;
  void keep_window(LayerObservations& seen, const LayerShape& shape, const LayerQueries& queries, const float* lse);
  void observe(int64_t layer, const LayerShape& shape, const LayerQueries& queries, const float* lse);

  Needs needs_;
  int64_t prompt_tokens_;
  int64_t hidden_size_;
  const ModelFacts* model_;
  BackRotation back_, own_back_;  // from ModelFacts::rotation, and from own_rotation
  std::vector<int64_t> tapped_;   // layers
  std::vector<LayerObservations> seen_;
  double seconds_ = 0;
  std::atomic<int64_t> reading_ns_ = 0;
  // The pass under way:
  int64_t layer_ = 0;
  int64_t position_ = 0;
  int64_t threads_ = 1;
};

/// Lets a method select before, and observe, pack and evict after the attention of each layer that it acts on. Throws
/// what the method throws.
class MethodHooks : public AttentionHooks, public KnownChoice {
 public:
  /// `model` must outlive the hooks.
  MethodHooks(const Method& method, Activity& activity, int64_t prompt_tokens, const ModelFacts* model)
      : method_(&method),
        activity_(&activity),
        prompt_tokens_(prompt_tokens),
        model_(model),
        wants_hidden_(method.needs().step_hidden) {}

  [[nodiscard]] HookAccess reach() const override;
  [[nodiscard]] bool known(const KvCache& cache) const override;
  void before_pass(KvCache& cache, std::span<const int32_t> tokens) override;
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override;
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;
  [[nodiscard]] bool wants_hidden() const override { return wants_hidden_; }
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override;

 protected:
  /// Between observe() and after_append().
  virtual void after_observe(LayerCache& /*cache*/) {}

 private:
  [[nodiscard]] LayerContext context(int64_t layer) const {
    return acted_->context(*cache_, layer, prompt_tokens_, model_, *activity_);
  }

  const Method* method_;
  Activity* activity_;
  int64_t prompt_tokens_;
  const ModelFacts* model_;
  bool wants_hidden_;
  std::optional<ActedLayers> acted_;  // once a cache was seen
  KvCache* cache_ = nullptr;          // of the pass under way
};

}  // namespace kvarena
