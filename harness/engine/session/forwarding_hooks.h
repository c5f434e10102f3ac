#pragma once
// Hooks that stand between a pass and other hooks.

#include "harness/cache/layer_cache.h"

namespace kvarena {

/// Passes every call on to the hooks behind it; where there are none, answers as hooks that do nothing. A decorator
/// derives from it and overrides what it changes.
class ForwardingHooks : public AttentionHooks {
 public:
  explicit ForwardingHooks(AttentionHooks* next = nullptr) : next_(next) {}
  /// Stands before `next` from now on, which must outlive the passes. Null: before nobody.
  void forward_to(AttentionHooks* next) { next_ = next; }

  [[nodiscard]] HookAccess reach() const override { return next_ != nullptr ? next_->reach() : HookAccess::nothing; }
  void complete(KvCache& cache) override {
    if (next_ != nullptr) next_->complete(cache);
  }
  void before_pass(KvCache& cache, std::span<const int32_t> tokens) override {
    if (next_ != nullptr) next_->before_pass(cache, tokens);
  }
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override {
    if (next_ != nullptr) next_->before_attention(layer, cache, queries);
  }
  [[nodiscard]] kernels::AttentionReader* reader(int64_t layer, const LayerCache& cache,
                                                 const LayerQueries& queries) override {
    return next_ != nullptr ? next_->reader(layer, cache, queries) : nullptr;
  }
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override {
    if (next_ != nullptr) next_->after_attention(layer, cache, queries, lse);
  }
  [[nodiscard]] bool wants_hidden() const override { return next_ != nullptr && next_->wants_hidden(); }
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
    if (next_ != nullptr) next_->after_layer(layer, rows, count, hidden_size);
  }

 private:
  AttentionHooks* next_;
};

}  // namespace kvarena
