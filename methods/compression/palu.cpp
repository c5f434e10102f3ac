#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/cache/latent_segment.h"
#include "harness/method/codec.h"
#include "harness/method/fitted_weights.h"
#include "harness/method/tensors.h"
#include "harness/method/unrotated_keys.h"

namespace kvarena {
namespace {

/// Sums of x x^T over the rows of each group of heads: [heads, n, head_dim] -> [groups, width, width].
at::Tensor second_moments(const at::Tensor& x, int64_t heads) {
  const at::Tensor rows = x.to(at::kDouble).view({x.size(0) / heads, heads, x.size(1), x.size(2)});
  const at::Tensor joined = rows.transpose(1, 2).flatten(2);  // [groups, n, heads * head_dim]
  return joined.transpose(1, 2).matmul(joined);
}

/// Directions of a group of heads, those along which its keys or values are longest first.
class DirectionFitter final : public Fitter {
 public:
  DirectionFitter(FittedRequest artifact, int64_t head_group)
      : artifact_(std::move(artifact)), head_group_(head_group) {}

  FittedRequest artifact() const override { return artifact_; }
  Needs needs() const override { return {}; }
  int64_t sample_tokens() const override { return 2048; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    const int64_t heads = std::min(head_group_, layer.kv_heads());
    return {{"keys", weight_of(second_moments(unrotated_keys(layer), heads))},
            {"values", weight_of(second_moments(layer.values(), heads))}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    FittedTensors solved;
    for (const std::string side : {"keys", "values"}) {
      at::Tensor sum;
      for (const FittedTensors& record : records) {
        const at::Tensor own = tensor_of(record.at(side)).to(at::kDouble);
        sum = sum.defined() ? sum + own : own;
      }
      const at::Tensor vectors = std::get<1>(at::linalg_eigh(sum));  // in columns, of ascending values
      solved[side] = weight_of(vectors.flip(-1).transpose(1, 2));
    }
    return solved;
  }

 private:
  FittedRequest artifact_;
  int64_t head_group_;
};

/// Low-rank projections of keys and values, by groups of heads.  The projection weights W of a group (keys before
/// rotation, values) are decomposed under the inputs h of calibration text (whitening, as in SVD-LLM): with S S^T =
/// sum h h^T,
///   W S = U D V^T,   W ~ L R,   L = U_r D_r^1/2,  R = D_r^1/2 V_r^T S^-1.
/// A token's latent is R h, and L puts its key or value together again: that is U_r U_r^T W h. U are the main
/// directions of the group's keys themselves, for W S S^T W^T = sum k k^T; so latents here are U_r^T k, and no weight
/// is touched. A bias of the projection counts as part of the key. The rank of each group is that of the authors'
/// `uniform` search: `share` of its channels, to the nearest multiple of `round_to` (and not 0). Their default gives
/// layers different ranks by gradients of the model, which are not at hand here. Directions are the model's and not
/// counted for a request, as the authors keep them in place of its weights. They compute the prompt with restored keys
/// and values too; here it is attended to as it is, as under every quantiser. Chang, Lin, Lin, Chen, Hu, Wang, Huang,
/// Ceze, Abdelfattah, Wu 2024, arXiv:2407.21118, sections 3.1 and 3.2. Weights: `kvarena fit`.
class Palu final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("share", share_).min(0).max(1).doc("rank of a group as a share of its channels");
    p("head_group", head_group_).min(1).doc("kv heads that are decomposed together; all, where there are fewer");
    p("round_to", round_to_).min(1).doc("ranks are multiples of this");
    p("weights", weights_).doc("file of fitted directions; empty = the project's for the model");
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<DirectionFitter>(artifact(), head_group_); }

  std::string check_layer(const LayerContext& layer) const override {
    const int64_t heads = layer.cache.shape().kv_heads;
    if (heads % std::min(head_group_, heads) == 0) return {};
    return fmt::format("head_group: found {}, which does not divide the model's {} kv heads", head_group_, heads);
  }

  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const auto weights = fitted_weights(layer.model, artifact());
    const LayerShape& shape = layer.cache.shape();
    const int64_t groups = shape.kv_heads / std::min(head_group_, shape.kv_heads);
    const LedgerPtr& ledger = layer.cache.ledger();
    return std::make_unique<LatentSegment>(
        shape,
        LatentSegment::Parts{.latents = std::make_shared<LatentEntries>(shape.kv_heads, groups, groups, ledger),
                             .keys = basis(*weights, layer, "keys"),
                             .values = basis(*weights, layer, "values"),
                             .rotary = rotary_keys(layer)},
        ledger);
  }

 private:
  [[nodiscard]] FittedRequest artifact() const {
    return {.method = "palu", .variant = fmt::format("heads{}", head_group_), .path = weights_};
  }

  [[nodiscard]] std::shared_ptr<const LatentBasis> basis(const FittedWeights& weights, const LayerContext& layer,
                                                         const std::string& side) const {
    const LayerShape& shape = layer.cache.shape();
    const int64_t heads = std::min(head_group_, shape.kv_heads), width = heads * shape.head_dim;
    const auto steps = std::max<int64_t>(1, std::lrint(share_ * static_cast<double>(width) / round_to_));
    const int64_t rank = std::min(width, steps * round_to_);
    const FittedTensor& all =
        weights.at(fmt::format("layers.{}.{}", layer.layer, side), {shape.kv_heads / heads, width, width});
    const at::Tensor own = tensor_of(all)
                               .narrow(1, 0, rank)
                               .reshape({shape.kv_heads / heads, rank, heads, shape.head_dim})
                               .transpose(1, 2)
                               .contiguous();  // [groups, heads, rank, head_dim]
    return std::make_shared<const LatentBasis>(shape, rank, heads,
                                               std::span(own.const_data_ptr<float>(), static_cast<size_t>(own.numel())),
                                               std::make_shared<MemoryLedger>(), /*model=*/true);
  }

  double share_ = 0.7;
  int64_t head_group_ = 4;
  int64_t round_to_ = 32;
  std::string weights_;
};

KVARENA_CODEC(Palu, {.name = "palu",
                     .title = "Palu",
                     .summary = "Stores projections of groups of heads to their main directions.",
                     .paper = "arXiv:2407.21118, sections 3.1 and 3.2"});

}  // namespace
}  // namespace kvarena
