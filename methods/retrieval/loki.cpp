#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "harness/method/entry_scores.h"
#include "harness/method/layer_view.h"
#include "harness/method/row_index.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// Principal components of keys: rows of `basis` [kv_heads, head_dim, head_dim], the largest variance first, and each
/// one's share of it [kv_heads, head_dim].
struct Components {
  at::Tensor basis;
  at::Tensor shares;
};

/// From sums over `count` keys: of keys [kv_heads, head_dim] and of their outer products [kv_heads, head_dim,
/// head_dim].
Components components_of(const at::Tensor& sum, const at::Tensor& products, double count) {
  const at::Tensor mean = sum / count;
  const at::Tensor covariance = products / count - mean.unsqueeze(2) * mean.unsqueeze(1);
  const auto [variances, vectors] = at::linalg_eigh(covariance);  // ascending; vectors in columns
  const at::Tensor largest_first = variances.flip({1}).clamp_min(0);
  const at::Tensor total = largest_first.sum(1, /*keepdim=*/true).clamp_min(1e-300);
  return {vectors.flip({2}).transpose(1, 2).contiguous(), largest_first / total};
}

class KeyComponents final : public Fitter {
 public:
  FittedRequest artifact() const override { return {.method = "loki", .variant = {}, .path = {}}; }
  Needs needs() const override { return {}; }
  int64_t sample_tokens() const override { return 1024; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    const at::Tensor keys = layer.keys().to(at::kDouble);
    return {{"count", {.shape = {1}, .values = {static_cast<float>(layer.n())}}},
            {"mean", weight_of(keys.mean(1))},
            {"products", weight_of(at::matmul(keys.transpose(1, 2), keys) / static_cast<double>(layer.n()))}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    at::Tensor sum;
    at::Tensor products;
    double count = 0;
    for (const FittedTensors& record : records) {
      const double n = record.at("count").values.front();
      const at::Tensor more = tensor_of(record.at("mean")).to(at::kDouble) * n;
      const at::Tensor more_products = tensor_of(record.at("products")).to(at::kDouble) * n;
      sum = sum.defined() ? sum + more : more;
      products = products.defined() ? products + more_products : more_products;
      count += n;
    }
    const Components found = components_of(sum, products, count);
    return {{"components", weight_of(found.basis)}, {"explained_variance", weight_of(found.shares)}};
  }
};

/// Leading components of every key, and the directions they are along. The directions are weights of the method, not of
/// the request: shared by its copies and not counted.
struct ComponentIndex final : public LayerIndex {
  explicit ComponentIndex(const LedgerPtr& ledger) : rows(0, 1, DType::f32, ledger) {}

  RowIndex rows;
  std::shared_ptr<const std::vector<float>> basis;  // [kv_heads, rank, head_dim]
  int64_t rank = 0;

  [[nodiscard]] int64_t bytes() const override { return rows.bytes(); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<ComponentIndex>(ledger);
    for (const RowList& head : rows.heads) copy->rows.heads.push_back(head.clone(ledger));
    copy->basis = basis;
    copy->rank = rank;
    return copy;
  }
  /// Rows of `from` [count, head_dim] along the head's directions: [count, rank].
  [[nodiscard]] std::vector<float> projected(const float* from, int64_t count, int64_t dim, int64_t kv_head) const {
    std::vector<float> to(static_cast<size_t>(count * rank));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t r = 0; r < rank; ++r) {
        const float* direction = basis->data() + (kv_head * rank + r) * dim;
        double total = 0;
        for (int64_t c = 0; c < dim; ++c) total += static_cast<double>(from[i * dim + c]) * direction[c];
        to[i * rank + r] = static_cast<float>(total);
      }
    }
    return to;
  }
};

/// Scores in few dimensions.  P[j] holds the principal components of rotated keys of kv head j, fitted on text;
///   s[h,i] = (P q_h)[:r] . (P k_i)[:r]
/// ranks the entries, and the best are attended exactly. P is orthogonal, so that all components together give q.k;
/// keys are not centred. r is `rank_share` of the head's dimensions, or what explains `variance` of it: components
/// whose cumulative share stays below it, the most that any head of the layer has (both as in the authors' code). Each
/// query head selects for itself there; the selection acts on decode steps alone here, on prompts too there. basis =
/// "prompt" takes the components of the request's own prompt, which needs no fit. The authors store keys projected by
/// P, so that their index costs nothing; here the leading components are stored beside the keys, rank / head_dim of
/// their bytes. Singhania et al. 2024, arXiv:2406.02542, section 4; hpcgroup/loki, methods/pca_topk/utils.py.
class Loki final : public ScoringRetriever {
 public:
  Loki() : ScoringRetriever("loki", "none") {}

  void parameters(ParameterVisitor& p) override {
    ScoringRetriever::parameters(p);
    p("rank_share", rank_share_).above(0).max(1).doc("dimensions that scores are computed in, of the head's");
    p("variance", variance_).above(0).max(1).doc("instead of rank_share: share of the keys' variance to explain");
    p("basis", basis_).one_of({"fitted", "prompt"}).doc("whose components: of a fit, or of this prompt's keys");
    p("weights", weights_).doc("file of fitted components; empty = the project's for the model");
    p("recent", recent_).min(1).doc("newest entries, always attended");
  }
  Protection protect(int64_t /*budget*/) const override { return {.recent = recent_}; }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<KeyComponents>(); }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& /*shape*/, const LedgerPtr& ledger) const override {
    return std::make_unique<ComponentIndex>(ledger);
  }

  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& seen) const override {
    auto& own = static_cast<ComponentIndex&>(index);
    const LayerView view(layer, &seen);
    const Components found = basis_ == "prompt" ? of_prompt(view) : of_fit(view);
    own.rank = rank_of(found.shares, view.head_dim());
    const at::Tensor leading = found.basis.narrow(1, 0, own.rank).to(at::kFloat).contiguous();
    const auto* numbers = leading.const_data_ptr<float>();
    own.basis = std::make_shared<const std::vector<float>>(numbers, numbers + leading.numel());
    own.rows = RowIndex(view.kv_heads(), own.rank, layer.cache.shape().dtype, layer.cache.ledger());
  }

  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& own = static_cast<ComponentIndex&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t count = end - own.entries;
    std::vector<float> keys(static_cast<size_t>(count * shape.head_dim));
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      entries.read_some(head, own.entries, count, keys.data(), nullptr, shape.head_dim);
      own.rows.heads[head].append(own.projected(keys.data(), count, shape.head_dim, head));
    }
  }

 protected:
  void score(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries, int64_t kv_head,
             std::span<float> scores) const override {
    const auto& own = static_cast<const ComponentIndex&>(index);
    const LayerShape& shape = entries.shape();
    const float* q = queries.q + kv_head * shape.group() * shape.head_dim;
    const std::vector<float> projected = own.projected(q, shape.group(), shape.head_dim, kv_head);
    own.rows.heads[kv_head].score(projected.data(), shape.group(), own.rank, scores);
  }

 private:
  static Components of_prompt(const LayerView& view) {
    const at::Tensor keys = view.keys().to(at::kDouble);
    return components_of(keys.sum(1), at::matmul(keys.transpose(1, 2), keys), static_cast<double>(view.n()));
  }
  [[nodiscard]] Components of_fit(const LayerView& view) const {
    const auto weights = view.model().fitted({.method = "loki", .variant = {}, .path = weights_});
    const std::string place = fmt::format("layers.{}.", view.layer());
    const int64_t d = view.head_dim();
    return {tensor_of(weights->at(place + "components", {view.kv_heads(), d, d})),
            tensor_of(weights->at(place + "explained_variance", {view.kv_heads(), d}))};
  }
  [[nodiscard]] int64_t rank_of(const at::Tensor& shares, int64_t dim) const {
    if (!variance_) return std::max<int64_t>(1, std::llround(rank_share_ * static_cast<double>(dim)));
    const at::Tensor below = shares.to(at::kDouble).cumsum(1).lt(*variance_).sum(1);
    return std::clamp<int64_t>(below.max().item<int64_t>(), 1, dim);
  }

  double rank_share_ = 0.25;
  std::optional<double> variance_;
  std::string basis_ = "fitted";
  std::string weights_;
  int64_t recent_ = 1;
};

KVARENA_RETRIEVER(Loki, {.name = "loki",
                         .title = "Loki",
                         .summary = "Ranks entries by the leading principal components of their keys.",
                         .paper = "arXiv:2406.02542, section 4"});

}  // namespace
}  // namespace kvarena
