#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/pruned_key_segment.h"
#include "harness/cache/shared_front.h"
#include "harness/method/fitted_weights.h"
#include "harness/method/layer_view.h"
#include "harness/method/registry.h"
#include "harness/method/selection.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// A factor in [0, 1] for every channel of a layer's keys: what it costs to scale the channel of the entries between
/// sinks and window, against how many channels stay,
///   mean over texts of |o' - o|^2 / |o|^2  +  0.06 mean over channels of the factor,
/// o what each query head of a text's last queries adds to the residual stream, o' with scaled keys. AdamW begins at 1,
/// and factors are cut to [0, 1] before each step.
class FactorFitter final : public Fitter {
 public:
  FittedRequest artifact() const override { return {.method = "leank", .variant = {}, .path = {}}; }
  Needs needs() const override { return {.window = kQueries, .output_projection = true}; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    const at::Tensor projection = layer.output_projection();  // [q_heads, head_dim, hidden_size]
    return {{"queries", weight_of(layer.queries(kQueries))},  // [q_heads, w, head_dim]
            {"keys", weight_of(layer.keys())},
            {"values", weight_of(layer.values())},
            {"output", weight_of(projection.matmul(projection.mT()))}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    std::vector<Text> texts;
    for (const FittedTensors& record : records) texts.emplace_back(record);
    const std::vector<int64_t>& keys = records.front().at("keys").shape;  // [kv_heads, n, head_dim]
    std::vector<at::Tensor> factors = {at::ones({keys[0], keys[2]})};
    descend(factors, std::ssize(texts), kDescent, draws, [&](const at::Tensor& text) {
      {
        const at::NoGradGuard cutting;
        factors[0].clamp_(0, 1);
      }
      return texts[text.item<int64_t>()].error(factors[0]) + kSparsity * factors[0].mean();
    });
    return {{"factors", weight_of(factors[0].clamp(0, 1).flatten())}};
  }
  /// As the authors store them: scaling_factors.tsv, a line a layer.
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override {
    std::vector<at::Tensor> rows;
    for (const FittedTensors& layer : layers) rows.push_back(tensor_of(layer.at("factors")));
    return {{"scaling_factors", weight_of(at::stack(rows))}};
  }

 private:
  /// A text's record, and what its queries attend to.
  struct Text {
    explicit Text(const FittedTensors& record)
        : keys(tensor_of(record.at("keys"))),
          queries(tensor_of(record.at("queries")) / std::sqrt(static_cast<double>(keys.size(2)))),
          values(tensor_of(record.at("values"))),
          output(tensor_of(record.at("output"))) {
      const int64_t n = keys.size(1), w = queries.size(1), group = queries.size(0) / keys.size(0);
      for (at::Tensor* const x : {&values, &keys}) *x = x->repeat_interleave(group, 0);
      hidden = at::arange(n).gt(at::arange(n - w, n).unsqueeze(1));  // [w, n]
      scaled = at::arange(n).ge(kSinks).logical_and(at::arange(n).lt(n - w));
      plain = queries.matmul(keys.mT());
      whole = attended(plain);
      size = added(whole);
    }
    [[nodiscard]] at::Tensor attended(const at::Tensor& scores) const {
      return scores.masked_fill(hidden, -std::numeric_limits<float>::infinity()).softmax(-1).matmul(values);
    }
    /// |x W|^2 over all query heads.
    [[nodiscard]] at::Tensor added(const at::Tensor& x) const { return (x.matmul(output) * x).sum(); }
    [[nodiscard]] at::Tensor error(const at::Tensor& factors) const {
      const at::Tensor own = factors.repeat_interleave(queries.size(0) / factors.size(0), 0).unsqueeze(1);
      const at::Tensor scores = at::where(scaled, (queries * own).matmul(keys.mT()), plain);
      return added(attended(scores) - whole) / size;
    }

    at::Tensor keys, queries, values, output;  // a row a query head
    at::Tensor hidden, scaled, plain, whole, size;
  };

  static constexpr int64_t kQueries = 64;  // of each text
  static constexpr int64_t kSinks = 16;
  static constexpr double kSparsity = 0.06;
  static constexpr Descent kDescent{.epochs = 10, .batch = 1, .learning_rate = 0.02, .weight_decay = 0};
};

/// Prunes the same channels of keys for every prompt.  A mask names the channels that keys of a layer and kv head keep;
/// the first `sinks` and the `recent` newest entries keep all, and while decoding, entries leave the newest in runs of
/// `block`. A head whose mask is empty drops the entries between, values too. From factors a, a channel each, a mask is
/// made as in the authors' code:
///   cut = the `pruned` quantile of all factors;  k[l,j] = number of a[l,j] >= cut, to the nearest multiple of round_to
/// and the head keeps its k[l,j] largest. Zhang, He, Jiang, Zhang, Yang, Wang, Qiu 2025, arXiv:2508.02215; the authors'
/// kernels and training are microsoft/MInference, LeanK. Weights: their masks (a .pth, [layers, kv_heads, head_dim]) or
/// their scaling_factors.tsv, or `kvarena fit`. Their training has two stages of gradients through the whole model, of
/// the distance of its last hidden states over answers to retrieval tasks of 4 to 96 thousand tokens, the second with
/// the mask in place. The fit here is the first stage alone, layer by layer, of the distance of what a layer's
/// attention adds over the last 64 of 512 tokens of any text; it knows neither later layers nor long contexts.
class LeanK final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    p("pruned", pruned_)
        .min(0)
        .max(1)
        .doc("share of all channels whose factors lie below the cut; masks say it themselves");
    p("round_to", round_to_).min(1).doc("heads keep a multiple of so many channels; masks say it themselves");
    p("sinks", sinks_).min(0).doc("first entries, whose keys stay whole");
    p("recent", recent_).min(0).doc("newest entries, whose keys stay whole");
    p("block", block_).min(1).doc("entries that are pruned together while decoding");
    p("weights", weights_)
        .doc("masks or factors that the authors trained; empty = the project's for the model, fitted layer by layer");
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<FactorFitter>(); }
  HookAccess reach() const override { return HookAccess::rows; }
  bool compresses_by_layer() const override { return true; }

  void compress(LayerContext& layer, const LayerObservations& /*seen*/) const override { prune(layer, 1); }
  void after_append(LayerContext& layer) const override { prune(layer, block_); }

 private:
  /// Prunes the entries between sinks and newest that are still whole, a multiple of `step`.
  void prune(LayerContext& layer, int64_t step) const {
    LayerCache& cache = layer.cache;
    const bool first = cache.segments().size() == 1;
    const int64_t waiting = cache.tail().entries(0) - (first ? sinks_ : 0) - recent_;
    const int64_t count = waiting / step * step;
    if (count <= 0) return;
    if (first && sinks_ > 0) set_front_apart(cache, sinks_);
    int64_t pruned = 0;
    for (const auto& segment : cache.segments()) {
      auto* const held = dynamic_cast<PrunedKeySegment*>(segment.get());
      if (held == nullptr) continue;
      std::vector<int64_t> counts;
      for (int64_t head = 0; head < cache.shape().kv_heads; ++head)
        counts.push_back(held->entries(head) > 0 ? count : 0);
      held->append(cache.tail(), counts);
      pruned += std::accumulate(counts.begin(), counts.end(), int64_t{0});
    }
    if (first) pruned = start(layer, count);
    cache.tail().drop_front(count);
    layer.activity.entries_packed += pruned;
    layer.activity.entries_dropped += count * cache.shape().kv_heads - pruned;
  }

  /// Makes a segment for each number of channels that heads keep, of the tail's first `count` entries. Returns how many
  /// these hold.
  int64_t start(LayerContext& layer, int64_t count) const {
    const PrunedKeySegment::Channels kept = channels(layer);
    std::vector<size_t> widths;
    for (const auto& own : kept) widths.push_back(own.size());
    std::ranges::sort(widths);
    widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
    int64_t held = 0;
    for (const size_t width : widths) {
      if (width == 0) continue;
      std::vector<int64_t> counts;
      PrunedKeySegment::Channels own = kept;
      for (auto& head : own) {
        counts.push_back(head.size() == width ? count : 0);
        held += counts.back();
        head.resize(width);  // of heads that hold nothing here
      }
      layer.cache.insert_before_tail(
          std::make_unique<PrunedKeySegment>(layer.cache.tail(), counts, own, layer.cache.ledger()));
    }
    return held;
  }

  /// Channels that each head keeps.
  [[nodiscard]] PrunedKeySegment::Channels channels(const LayerContext& layer) const {
    const auto weights = fitted_weights(layer.model, {.method = "leank", .variant = {}, .path = weights_});
    const LayerShape& shape = layer.cache.shape();
    const bool factors = weights->has("scaling_factors");
    const int64_t d = shape.head_dim, row = shape.kv_heads * d;
    const std::vector<float>& all = (factors ? weights->at("scaling_factors", {layer.layers, row})
                                             : weights->at("masks", {layer.layers, shape.kv_heads, d}))
                                        .values;
    const double cut = factors ? quantile(all) : 1;
    PrunedKeySegment::Channels kept;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const std::span own =
          std::span(all).subspan(static_cast<size_t>(layer.layer * row + head * d), static_cast<size_t>(d));
      int64_t count = std::ranges::count_if(own, [&](float factor) { return factor >= cut; });
      if (factors) count = std::min(d, (count + round_to_ / 2) / round_to_ * round_to_);
      kept.push_back(select_best(own, count, {}));
    }
    return kept;
  }

  /// The `pruned` quantile, between the two nearest factors.
  [[nodiscard]] double quantile(std::vector<float> factors) const {
    std::ranges::sort(factors);
    const double place = pruned_ * static_cast<double>(factors.size() - 1);
    const auto below = static_cast<size_t>(place);
    const double low = factors[below], high = factors[std::min(below + 1, factors.size() - 1)];
    return low + (high - low) * (place - static_cast<double>(below));
  }

  double pruned_ = 0.7;
  int64_t round_to_ = 32;
  int64_t sinks_ = 128;
  int64_t recent_ = 768;
  int64_t block_ = 128;
  std::string weights_;
};

KVARENA_METHOD(LeanK, Family::compression,
               {.name = "leank",
                .title = "LeanK",
                .summary = "Drops the channels of keys that were learned to matter least, the same for all prompts.",
                .paper = "arXiv:2508.02215"});

}  // namespace
}  // namespace kvarena
