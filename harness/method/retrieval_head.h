#pragma once
// A small network that says before a model runs which entries it will want: the query and key projections of one layer
// over the embeddings, without values, feed-forward and output. Xu et al. 2025, arXiv:2512.00722, section 4.3.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/method/fitted.h"
#include "harness/method/model_facts.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {

/// Names that the tensors of an EAGLE-3 drafter end in, of which a head is made (FittedRequest::wanted).
[[nodiscard]] const std::vector<std::string>& retrieval_head_tensors();

/// x = [norm(embedding) ; norm(feature)],  q = rotate(W_q x),  k = rotate(W_k x).
///
/// Weights are either of two kinds.
/// - An EAGLE-3 drafter (Li et al. 2025, arXiv:2503.01840): W [heads * head_dim, 2 * hidden_size], the second half for
///   the feature, fc of three layers' residuals of the token before; config.json in the metadata.
/// - A fitted artifact: tensors q [q_heads, head_dim, hidden_size], k [kv_heads, head_dim, hidden_size] and window [1];
///   its norm has no weight, its rotation is the model's own base, and it reads no features.
class RetrievalHead {
 public:
  struct Options {
    bool features = false;  // read the feature half; without it that half is zero
    double yarn = 0;        // YaRN's factor; 0: as far as the model's window reaches past the head's
  };

  /// Throws UserError naming the tensor or the key that does not fit the model.
  RetrievalHead(const FittedWeights& weights, const ModelFacts& model, const Options& options);

  [[nodiscard]] int64_t q_heads() const { return q_heads_; }
  [[nodiscard]] int64_t kv_heads() const { return kv_heads_; }
  [[nodiscard]] int64_t head_dim() const { return head_dim_; }
  [[nodiscard]] bool reads_features() const { return feature_.reads(); }
  /// Numbers of a token's feature: three layers' residuals of hidden_size.
  [[nodiscard]] int64_t feature_size() const { return 3 * hidden_size_; }
  [[nodiscard]] int64_t weight_bytes() const;

  /// Tokens at `position` and after it. embeddings [count, hidden_size]; features [count, feature_size()] of the tokens
  /// before each, a row of zeros where unknown, or null. q [count, q_heads, head_dim] and k [count, kv_heads,
  /// head_dim]; either may be null.
  void project(const float* embeddings, const float* features, int64_t count, int64_t position, float* q,
               float* k) const;

 private:
  /// The projections of one half of the input.
  struct Half {
    kernels::PackedMatrix q;  // [q_heads * head_dim, hidden_size]
    kernels::PackedMatrix k;  // [kv_heads * head_dim, hidden_size]
    std::vector<float> norm;  // [hidden_size]
    [[nodiscard]] bool reads() const { return !norm.empty(); }
  };

  void read_artifact(const FittedWeights& weights, double theta);
  void read_drafter(const FittedWeights& weights, bool features);
  void rotate(float* x, int64_t count, int64_t heads, int64_t position) const;
  /// out [count, heads * head_dim] += W norm(x).
  void add_half(const kernels::PackedMatrix& w, const std::vector<float>& normed, int64_t count, float* out) const;

  int64_t hidden_size_;
  float eps_;
  int64_t q_heads_ = 0;
  int64_t kv_heads_ = 0;
  int64_t head_dim_ = 0;
  double theta_ = 10000.0;
  int64_t window_ = 0;  // positions that the head was trained on
  Half token_;
  Half feature_;
  kernels::PackedMatrix fc_;  // [hidden_size, 3 * hidden_size]
  Rotation rotation_;
};

}  // namespace kvarena
