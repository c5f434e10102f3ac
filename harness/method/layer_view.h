#pragma once
// One layer as a scorer or retriever sees it, as tensors. All tensors are float32 on the CPU unless said.

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>

#include "harness/cache/layer_cache.h"
#include "harness/method/method.h"

namespace kvarena {

/// A window on one layer's entries: n entries of every kv head it shows. A layer whose heads hold the same number is
/// seen whole; of a ragged layer each head is seen by itself (kv_heads() = 1, q_heads() = its group), so tensors are
/// rectangular always.
/// Tensors are made when asked for; the view must not outlive the cache and the observations it was made from.
class LayerView {
 public:
  /// All heads, which must hold the same number. While decoding `seen` is null, or holds the newest queries alone
  /// (entries = 0): then only these and what the cache itself holds can be asked for.
  LayerView(const LayerContext& layer, const LayerObservations* seen);
  /// One head.
  LayerView(const LayerContext& layer, const LayerObservations* seen, int64_t kv_head);
  /// A part of this view: for each of its heads the same number of ascending entries. Observations are cut to it;
  /// window_attention() and for_each_query_block() are then attention among the part's own entries, from its last ones.
  [[nodiscard]] LayerView part(std::vector<std::vector<int32_t>> entries) const;
  /// This view under a budget of so many entries a head on average, before rounding.
  [[nodiscard]] LayerView under(double share) const;

  [[nodiscard]] int64_t layer() const { return layer_->layer; }
  [[nodiscard]] int64_t layers() const { return layer_->layers; }
  [[nodiscard]] bool decoding() const { return seen_ == nullptr || seen_->entries == 0; }
  [[nodiscard]] int64_t prompt_tokens() const { return layer_->prompt_tokens; }
  [[nodiscard]] int64_t n() const { return n_; }
  /// Position behind the prompt, were these entries all there is of what the layer holds of it.
  [[nodiscard]] int64_t end() const { return layer_->prompt_begin + n_; }
  /// The budget, entries a head on average; n where there is none.
  [[nodiscard]] double share() const { return share_.value_or(static_cast<double>(n_)); }
  [[nodiscard]] int64_t q_heads() const { return kv_heads_ * group(); }
  [[nodiscard]] int64_t kv_heads() const { return kv_heads_; }
  [[nodiscard]] int64_t group() const { return shape_.group(); }
  [[nodiscard]] int64_t head_dim() const { return shape_.head_dim; }
  /// The layer's number of the first kv head shown.
  [[nodiscard]] int64_t first_head() const { return first_head_; }

  [[nodiscard]] at::Tensor keys() const;       // [kv_heads, n, head_dim], rotated
  [[nodiscard]] at::Tensor values() const;     // [kv_heads, n, head_dim]
  [[nodiscard]] at::Tensor positions() const;  // [kv_heads, n], int64

  /// Attention each entry received, summed over all prompt queries: [q_heads, n]. Needs::prompt_attention.
  [[nodiscard]] at::Tensor prompt_attention() const;
  /// Attention from the last w prompt queries, summed over them, causal inside the window: [q_heads, n]; `times_seen`:
  /// each query's times the entries before it. Needs::window >= w; a prompt shorter than w gives all its queries.
  [[nodiscard]] at::Tensor window_attention(int64_t w, bool times_seen = false) const;
  /// The last w prompt queries, rotated, [q_heads, w, head_dim]. Needs::window >= w; a prompt shorter than w gives all
  /// its queries.
  [[nodiscard]] at::Tensor queries(int64_t w) const;
  /// The last w prompt queries' scores over all entries, a block of queries at a time (about 16 MB): `use` gets
  /// [q_heads, rows, n], q.k / sqrt(head_dim) and -inf where a query does not see an entry, and the position of the
  /// block's first query. Needs::window >= w; a prompt shorter than w gives all its queries.
  void for_each_query_block(int64_t w, const std::function<void(const at::Tensor& scores, int64_t first)>& use) const;
  /// Column `column` of the numbers that the scorer keeps with every entry: [kv_heads, n]. Scorer::score_width >
  /// column.
  [[nodiscard]] at::Tensor entry_scores(int64_t column = 0) const;
  /// Attention inputs of the prompt: [n, hidden_size]. Needs::hidden.
  [[nodiscard]] at::Tensor hidden() const;
  /// The prompt's residual stream behind this layer: [n, hidden_size]. Needs::taps with this layer among them.
  [[nodiscard]] at::Tensor residual() const;
  /// The output projection's part of each query head, transposed: [q_heads, head_dim, hidden_size], so that a head adds
  /// values.matmul(it) to the residual stream. Needs::output_projection.
  [[nodiscard]] at::Tensor output_projection() const;
  /// Attention each entry will receive in the full-KV continuation, summed over its queries: [q_heads, n].
  /// Needs::future.
  [[nodiscard]] at::Tensor future_attention() const;
  /// Needs::query_moments with this number of queries left out.
  [[nodiscard]] const QueryMoments& query_moments(int64_t left_out) const;
  /// Needs::reconstructions with this one among them.
  [[nodiscard]] const ReconstructionScores& reconstruction(const Reconstruction& what) const;
  /// Its scores by group: [kv_heads, group, n].
  [[nodiscard]] at::Tensor reconstruction_scores(const Reconstruction& what) const;
  /// The sums of this statistic, [kv_heads, n, width]. Needs::statistics with one of its id among them.
  [[nodiscard]] at::Tensor prompt_statistic(const PromptStatistic& what) const;
  [[nodiscard]] const ModelFacts& model() const;
  /// The prompt's tokens, one an entry.
  [[nodiscard]] std::span<const int32_t> tokens() const;

  /// [q_heads, n] -> [kv_heads, n], reduced over each group of query heads by "mean", "max" or "sum".
  [[nodiscard]] at::Tensor group_reduce(const at::Tensor& per_query_head, const std::string& by) const;
  /// [q_heads, n] -> [kv_heads, n], mean over each group of query heads.
  [[nodiscard]] at::Tensor group_mean(const at::Tensor& per_query_head) const;
  /// [q_heads, n] -> [kv_heads, n], sum over each group.
  [[nodiscard]] at::Tensor group_sum(const at::Tensor& per_query_head) const;

 private:
  LayerView(const LayerContext& layer, const LayerObservations* seen, int64_t first_head, int64_t kv_heads);
  [[nodiscard]] const EntrySegment& tail() const { return layer_->cache.tail(); }
  /// Rows of the shown query heads of [all query heads, n].
  [[nodiscard]] at::Tensor shown(const at::Tensor& per_query_head) const;
  /// The part's entries of [kv_heads or q_heads, all entries, ...].
  [[nodiscard]] at::Tensor cut(const at::Tensor& all) const;
  /// Probabilities of scores [q_heads, count, n], among which the layer's sinks have their share.
  [[nodiscard]] at::Tensor softmax(const at::Tensor& scores) const;
  /// The shown entries' rows of [all entries, ...].
  [[nodiscard]] at::Tensor token_rows(const std::vector<float>& rows) const;

  const LayerContext* layer_;
  const LayerObservations* seen_;
  LayerShape shape_;
  int64_t first_head_;
  int64_t kv_heads_;
  int64_t all_;                                                    // entries of a head in the cache
  int64_t n_;                                                      // entries shown
  std::shared_ptr<const std::vector<std::vector<int32_t>>> part_;  // [kv_heads][n], null when all are shown
  std::optional<double> share_;
};

}  // namespace kvarena
