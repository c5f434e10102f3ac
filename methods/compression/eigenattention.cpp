#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "harness/cache/latent_segment.h"
#include "harness/method/codec.h"
#include "harness/method/fitted_weights.h"
#include "harness/method/tensors.h"
#include "harness/method/unrotated_keys.h"

namespace kvarena {
namespace {

constexpr double kStep = 0.02;        // between thresholds that are tried, from 1 down
constexpr double kLeastRank = 0.45;   // of a head's channels; a threshold that leaves no more is not taken
constexpr int64_t kQueries = 64;      // last ones of a text, by whose outputs errors are measured
constexpr int64_t kTextTokens = 512;  // of a text that a fit reads

/// Directions of vectors, longest first, and the share of their singular values that the first ones hold together.
struct Directions {
  at::Tensor rows;   // [.., head_dim, head_dim]
  at::Tensor share;  // [.., head_dim], ascending to 1
};
Directions directions_of(const at::Tensor& moments) {
  const auto [squares, vectors] = at::linalg_eigh(moments);  // in columns, of ascending values
  const at::Tensor sizes = squares.clamp_min(0).sqrt().flip(-1);
  return {.rows = vectors.flip(-1).mT().to(at::kFloat).contiguous(),
          .share = (sizes.cumsum(-1) / sizes.sum(-1, /*keepdim=*/true)).to(at::kFloat).contiguous()};
}

/// How many directions hold less than threshold number `step` of the singular values: the most that any head needs.
/// Before the first threshold (-1) all of them.
int64_t rank_of(const at::Tensor& share, int64_t step) {
  if (step < 0) return share.size(-1);
  return share.lt(1 - kStep * static_cast<double>(step)).sum(-1).max().item<int64_t>();
}

/// Outputs of attention's projection for a text whose keys and values lie along the first directions.
at::Tensor outputs(const FittedTensors& text, const Directions& keys, int64_t key_rank, const Directions& values,
                   int64_t value_rank) {
  const auto along = [](const at::Tensor& x, const at::Tensor& all, int64_t rank) {
    const at::Tensor rows = all.narrow(-2, 0, rank);
    return x.matmul(rows.mT()).matmul(rows);
  };
  at::Tensor k = along(tensor_of(text.at("keys")), keys.rows, key_rank).contiguous();
  const std::vector<float>&rotation = text.at("rotation").values, &places = text.at("positions").values;
  const RotaryKeys rotary(std::vector<double>(rotation.begin(), rotation.end()));
  for (int64_t head = 0; head < k.size(0); ++head)
    rotary.redo(k[head].mutable_data_ptr<float>(), std::vector<int32_t>(places.begin(), places.end()));
  const at::Tensor v = along(tensor_of(text.at("values")), values.rows, value_rank);
  const at::Tensor queries = tensor_of(text.at("queries"));  // [q_heads, rows, head_dim]
  const int64_t group = queries.size(0) / k.size(0);
  const at::Tensor scores = queries.matmul(k.repeat_interleave(group, 0).mT()) + tensor_of(text.at("unseen"));
  const at::Tensor attended = scores.softmax(-1).matmul(v.repeat_interleave(group, 0));
  return attended.matmul(tensor_of(text.at("projection"))).sum(0);  // [rows, hidden_size]
}

class SubspaceFitter final : public Fitter {
 public:
  explicit SubspaceFitter(FittedRequest artifact) : artifact_(std::move(artifact)) {}

  FittedRequest artifact() const override { return artifact_; }
  Needs needs() const override { return {.window = kQueries, .output_projection = true}; }
  int64_t sample_tokens() const override { return kTextTokens; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    std::vector<at::Tensor> unseen;  // by each query, which entries
    layer.for_each_query_block(kQueries,
                               [&](const at::Tensor& scores, int64_t) { unseen.push_back(scores[0].isinf()); });
    const double scale = 1 / std::sqrt(static_cast<double>(layer.head_dim()));
    return {{"keys", weight_of(unrotated_keys(layer))},
            {"values", weight_of(layer.values())},
            {"positions", weight_of(layer.positions()[0])},
            {"rotation", weight_of(at::tensor(layer.model().rotation_of(layer.layer()).inverse))},
            {"queries", weight_of(layer.queries(kQueries) * scale)},
            {"unseen", weight_of(at::cat(unseen).to(at::kFloat) * -1e30)},
            {"projection", weight_of(layer.output_projection())}};
  }

  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    const auto moments = [&records](const char* side, bool together) {
      at::Tensor sum;
      for (const FittedTensors& text : records) {
        at::Tensor rows = tensor_of(text.at(side)).to(at::kDouble);
        if (together) rows = rows.flatten(0, 1);
        const at::Tensor own = rows.mT().matmul(rows);
        sum = sum.defined() ? sum + own : own;
      }
      return sum;
    };
    const Directions keys = directions_of(moments("keys", true)), values = directions_of(moments("values", false));
    return {{"keys", weight_of(keys.rows)},
            {"values", weight_of(values.rows)},
            {"key_share", weight_of(keys.share)},
            {"value_share", weight_of(values.share)},
            {"errors", weight_of(errors(records, keys, values))}};
  }

 private:
  /// Relative errors of the outputs at each threshold, as far as ranks are above the least.
  static at::Tensor errors(const std::vector<FittedTensors>& records, const Directions& keys,
                           const Directions& values) {
    const int64_t all = keys.share.size(-1);
    std::vector<at::Tensor> exact;
    for (const FittedTensors& text : records) exact.push_back(outputs(text, keys, all, values, all));
    std::vector<double> found;
    for (int64_t step = 0;; ++step) {
      const int64_t key_rank = rank_of(keys.share, step), value_rank = rank_of(values.share, step);
      const double least = kLeastRank * static_cast<double>(all);
      if (std::min(key_rank, value_rank) <= least) return at::tensor(found).to(at::kFloat);
      double error = 0, size = 0;
      for (size_t text = 0; text < records.size(); ++text) {
        error +=
            (exact[text] - outputs(records[text], keys, key_rank, values, value_rank)).square().sum().item<double>();
        size += exact[text].square().sum().item<double>();
      }
      found.push_back(std::sqrt(error / size));
    }
  }

  FittedRequest artifact_;
};

/// Keys and values along their main directions in calibration text: those of keys, before rotation, are shared by the
/// heads of a layer, values have theirs a head. With U the left singular vectors of the vectors side by side,
///   stored  U_r^T k,   restored  U_r U_r^T k, which is rotated to its position.
/// Ranks are a layer's own: r directions hold less than a threshold of the sum of singular values (the most that any
/// head needs), and thresholds go down from 1 in steps of 0.02, as long as the layer's error stays below `error_budget`
/// and ranks stay above 0.45 of the channels. All this is the authors' code for models with rotary embeddings, which
/// leaves queries out of the keys' directions, where the paper joins both. Their error is that of the layer's output; a
/// method sees no MLP, so here it is that of what attention adds to the residual stream, for the last 64 queries of
/// each text, and budgets are larger numbers: 0.3 keeps 70% of SmolLM2 135M's bytes. Fine-tuning is not here. They
/// compute the prompt with restored keys and values too; here it is attended to as it is. Saxena, Saha, Choudhary, Roy
/// 2024, arXiv:2408.05646, section 4. Weights: `kvarena fit`.
class EigenAttention final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("error_budget", error_budget_).min(0).doc("relative error of attention's output that a layer's ranks stay below");
    p("weights", weights_).doc("file of fitted directions; empty = the project's for the model");
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<SubspaceFitter>(artifact()); }

  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const auto weights = fitted_weights(layer.model, artifact());
    const LayerShape& shape = layer.cache.shape();
    const int64_t heads = shape.kv_heads, width = shape.head_dim;
    const auto read = [&](const char* name, const std::vector<int64_t>& sizes) {
      return tensor_of(weights->at(fmt::format("layers.{}.{}", layer.layer, name), sizes));
    };
    const at::Tensor errors = read("errors", {-1});
    int64_t step = 0;
    while (step < errors.size(0) && errors[step].item<double>() < error_budget_) ++step;
    const auto basis = [&](const at::Tensor& rows, const at::Tensor& share) {
      const int64_t rank = rank_of(share, step - 1);
      const at::Tensor own = rows.narrow(-2, 0, rank).expand({heads, rank, width}).contiguous();
      return std::make_shared<const LatentBasis>(
          shape, rank, 1, std::span(own.const_data_ptr<float>(), static_cast<size_t>(own.numel())),
          std::make_shared<MemoryLedger>(), /*model=*/true);
    };
    const LedgerPtr& ledger = layer.cache.ledger();
    return std::make_unique<LatentSegment>(
        shape,
        LatentSegment::Parts{
            .latents = std::make_shared<LatentEntries>(heads, heads, heads, ledger),
            .keys = basis(read("keys", {width, width}), read("key_share", {width})),
            .values = basis(read("values", {heads, width, width}), read("value_share", {heads, width})),
            .rotary = rotary_keys(layer)},
        ledger);
  }

 private:
  [[nodiscard]] FittedRequest artifact() const { return {.method = "eigenattention", .variant = {}, .path = weights_}; }

  double error_budget_ = 0.3;
  std::string weights_;
};

KVARENA_CODEC(EigenAttention, {.name = "eigenattention",
                               .title = "EigenAttention",
                               .summary = "Stores keys and values along main directions, ranks by a layer's error.",
                               .paper = "arXiv:2408.05646, section 4"});

}  // namespace
}  // namespace kvarena
