#pragma once
// A drafting head: one decoder layer that reads what a model computed of a token and the token that followed, and
// predicts the next one. Li et al. 2025 (EAGLE-3), arXiv:2503.01840, section 3.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/method/fitted.h"
#include "harness/method/model_facts.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {

/// Names that the tensors of a drafter end in, all but its embeddings (FittedRequest::wanted).
[[nodiscard]] const std::vector<std::string>& draft_head_tensors();

/// Row i stands for token i + 1 and the model's view of token i: the embedding e of the one, and g, which is fc of the
/// residual stream of the other at three taps (low, middle, high), or the row of token i that the head itself put out
/// where the model has not been yet.
///   x = [norm(e) ; norm(g)],  h = g + attention(x),  out = h + mlp(norm(h)),  logits = lm_head(norm(out))
/// over a draft vocabulary, of which every id stands for one of the model's tokens. Published drafters may take the
/// normed g as residual (norm_before_residual).
///
/// Weights are a checkpoint's (DrafterFile) or were fitted. The latter have the same tensors, "heads" [1] for the query
/// heads, "t2d" [vocab_size] with ones at its tokens in place of d2t, and rotate by the model's base.
class DraftHead {
 public:
  /// `yarn`: YaRN's factor on the window that the head was trained on; 1: none. `cache`: how its entries are kept.
  /// Throws UserError naming the tensor or the key that does not fit the model.
  DraftHead(const FittedWeights& weights, const ModelFacts& model, double yarn, DType cache);

  [[nodiscard]] const LayerShape& shape() const { return shape_; }
  [[nodiscard]] int64_t hidden_size() const { return hidden_size_; }
  /// Numbers of a token's taps, one after the other: 3 * hidden_size.
  [[nodiscard]] int64_t feature_size() const { return 3 * hidden_size_; }
  [[nodiscard]] int64_t draft_vocab() const { return static_cast<int64_t>(tokens_.size()); }
  /// The model's token that a draft id stands for.
  [[nodiscard]] int32_t token(int64_t draft_id) const { return tokens_[draft_id]; }
  [[nodiscard]] int64_t weight_bytes() const;

  /// g [count, hidden_size] of features [count, feature_size()].
  void fuse(const float* features, int64_t count, float* g) const;

  struct Rows {
    const float* embeddings = nullptr;  // [count, hidden_size]
    const float* hidden = nullptr;      // g, [count, hidden_size]
    int64_t count = 0;
    int64_t position = 0;  // of the first; the others follow, or stand beside it where `seen` is given
    /// [count], ascending indices of the entries that a row sees, its own among them; empty: all up to its own.
    std::vector<std::vector<int32_t>> seen;
  };
  /// Appends the rows' entries to `cache` and puts out their rows [count, hidden_size].
  void run(const Rows& rows, LayerCache& cache, float* out) const;
  /// Logits [count, draft_vocab] of rows that run() put out.
  void predict(const float* out, int64_t count, float* logits) const;

 private:
  void read_attention(const FittedWeights& weights);
  void read_vocabulary(const FittedWeights& weights, int64_t vocab_size);
  void rotate(float* x, int64_t count, int64_t heads, const Rows& rows) const;
  void attend(const std::vector<float>& q, const Rows& rows, LayerCache& cache, float* out) const;

  int64_t hidden_size_;
  float eps_;
  LayerShape shape_;
  bool norm_before_residual_ = false;
  Rotation rotation_;
  kernels::PackedMatrix fc_;       // [hidden_size, 3 * hidden_size]
  kernels::PackedMatrix q_;        // [q_heads * head_dim, 2 * hidden_size]
  kernels::PackedMatrix k_;        // [kv_heads * head_dim, 2 * hidden_size]
  kernels::PackedMatrix v_;        // [kv_heads * head_dim, 2 * hidden_size]
  kernels::PackedMatrix o_;        // [hidden_size, q_heads * head_dim]
  kernels::PackedMatrix gate_;     // [intermediate, hidden_size]
  kernels::PackedMatrix up_;       // [intermediate, hidden_size]
  kernels::PackedMatrix down_;     // [hidden_size, intermediate]
  kernels::PackedMatrix head_;     // [draft_vocab, hidden_size]
  std::vector<float> token_norm_;  // norms [hidden_size]
  std::vector<float> feature_norm_;
  std::vector<float> mlp_norm_;
  std::vector<float> final_norm_;
  std::vector<int32_t> tokens_;  // [draft_vocab]
};

}  // namespace kvarena
