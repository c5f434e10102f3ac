#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "harness/cache/attend_plan.h"
#include "harness/core/error.h"
#include "harness/method/pruner.h"
#include "harness/method/registry.h"
#include "harness/method/selection.h"

namespace kvarena {
namespace {

/// Entries of the present request's newest tokens that are not cut.
struct RecentTokens final : public LayerIndex {
  int64_t count = 0;
  [[nodiscard]] int64_t bytes() const override { return sizeof(count); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& /*ledger*/) const override {
    auto copy = std::make_unique<RecentTokens>();
    copy->count = count;
    return copy;
  }
};

/// Where a layer's next block of generated entries begins.
struct NextBlock final : public LayerIndex {
  int64_t begin = 0;
  [[nodiscard]] int64_t bytes() const override { return sizeof(begin); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& /*ledger*/) const override {
    auto copy = std::make_unique<NextBlock>();
    copy->begin = begin;
    return copy;
  }
};

/// The prompt gets shorter from layer to layer: what the newest tokens do not attend to leaves before the next layer,
/// which never computes it.  Of a prompt of n tokens the last 1 + R, R = int(recent n), always go on; the others are
/// the context. With the mean over query heads of layer l's attention a, and L layers,
///   s[i]    = sum over the last 1 + R queries t of w[t] a[t,i],  w from 1 to `distance_weight` in equal steps
///   ratio_l = (1 - decay) (cos(pi l / L) + 1) / 2 + decay
/// the first `sinks` and the best of the context by s, int(ratio_l context) of them, go on to layer l + 1, provided
/// that these are more than `min_context`. All heads share tokens; keys keep their positions. While decoding, entries
/// leave in blocks of `block`: the oldest one behind the prompt, its last token included, is cut to max(1,
/// int(generated_keep block ratio'_l)) entries, ratio' with `generated_decay`, as soon as 1 + R tokens stand behind it,
/// by the attention of exactly these. R grows with layer 0's entries. Yang, Han, Gao, Hu, Zhang, Zhao 2024,
/// arXiv:2405.12532, section 4; rules and defaults of the authors' code for models of 7 and 8 billion parameters (13:
/// decay 0.8, interval 2; 70: interval 3). Their "linear" schedule never runs. They keep the rows of the last 1 + R
/// queries; a block's score needs two sums an entry.
class PyramidInfer final : public Method, public Pruner {
 public:
  void parameters(ParameterVisitor& p) override {
    p("decay", decay_).min(0).max(1).doc("share of the context that goes on from the last layers; 1 prunes nothing");
    p("recent_ratio", recent_ratio_).min(0).max(1).doc("share of the prompt, its newest tokens, that votes and stays");
    p("interval", interval_).min(1).doc("prune after every so many layers");
    p("min_context", min_context_).min(0).doc("context tokens that are never gone below");
    p("sinks", sinks_).min(0).doc("first tokens, kept for ever");
    p("distance_weight", distance_weight_).above(0).doc("weight of the newest query's vote; the oldest one's is 1");
    p("block", block_).min(1).doc("generated entries that are cut together");
    p("generated_decay", generated_decay_).min(0).max(1).doc("decay of the blocks' shares over the layers");
    p("generated_keep", generated_keep_).min(0).max(1).doc("share of a block that stays in the first layer");
    p("decoding", decoding_).doc("whether generated entries are cut at all");
  }
  [[nodiscard]] const Pruner* pruner() const override { return this; }
  Needs needs() const override { return {.step_attention = decoding_}; }

  std::vector<float> votes(int64_t prompt_tokens) const override {
    const int64_t count = voters(prompt_tokens);
    std::vector<float> weights;
    for (int64_t t = 0; t < count; ++t)
      weights.push_back(static_cast<float>(1 + slope(count) * static_cast<double>(t)));
    return weights;
  }

  bool prunes(int64_t layer, int64_t layers) const override {
    return layer % interval_ == 0 && ratio(decay_, layer, layers) < 1;
  }

  std::vector<int32_t> keep(const PrunedLayer& seen) const override {
    const int64_t context = static_cast<int64_t>(seen.positions.size()) - voters(seen.prompt_tokens);
    const int64_t least = std::min(min_context_, seen.prompt_tokens - voters(seen.prompt_tokens));
    const auto count = static_cast<int64_t>(static_cast<double>(context) * ratio(decay_, seen.layer, seen.layers));
    if (context <= least || count <= least) return {seen.positions.begin(), seen.positions.end()};
    std::vector<int32_t> kept;
    for (const int32_t i : select_best(seen.attention.first(context), count, {.sinks = std::min(sinks_, count)})) {
      kept.push_back(seen.positions[i]);
    }
    kept.insert(kept.end(), seen.positions.begin() + context, seen.positions.end());
    return kept;
  }

  void compress(LayerContext& layer, const LayerObservations& /*seen*/) const override {
    if (!decoding_) return;
    auto next = std::make_unique<NextBlock>();
    next->begin = layer.cache.tail().entries(0) - 1;
    layer.cache.index = std::move(next);
    layer.cache.tail().reserve_scores(2);
    if (layer.request != nullptr) layer.request->index = std::make_unique<RecentTokens>();
  }

  void begin_step(RequestContext& request, int64_t q_len) const override {
    auto* recent = dynamic_cast<RecentTokens*>(request.cache.index.get());
    if (recent == nullptr) return;
    recent->count = share(recent_ratio_, request.cache.layers.front().tail().entries(0) + q_len);
  }

  /// Adds what each query attends to in blocks that end before it: the sum, and the sum times its place behind them.
  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override {
    const auto* next = dynamic_cast<const NextBlock*>(layer.cache.index.get());
    if (next == nullptr) return;
    EntrySegment& tail = layer.cache.tail();
    const LayerShape& shape = layer.cache.shape();
    const int64_t n = tail.entries(0);
    for (int64_t t = 0; t < queries.q_len; ++t) {
      const int64_t own = n - queries.q_len + t;
      if (own < next->begin + block_) continue;
      std::vector<float> attention(static_cast<size_t>(shape.q_heads * n));
      const LayerQueries one{.q = queries.q + t * queries.q_stride,
                             .q_len = 1,
                             .q_stride = queries.q_stride,
                             .position = queries.position + t};
      add_probabilities(plan_of(tail, one), lse + t * shape.q_heads, attention.data(), n);
      for (int64_t i = next->begin; i < own; ++i) {
        const int64_t behind = own - (next->begin + ((i - next->begin) / block_ + 1) * block_);
        if (behind < 0) break;
        float mean = 0;
        for (int64_t h = 0; h < shape.q_heads; ++h) mean += attention[h * n + i];
        mean /= static_cast<float>(shape.q_heads);
        for (int64_t head = 0; head < shape.kv_heads; ++head) {
          const std::span<float> sums = tail.entry_scores(head);
          sums[2 * i] += mean;
          sums[2 * i + 1] += static_cast<float>(behind) * mean;
        }
      }
    }
  }

  HookAccess reach() const override { return HookAccess::rows; }

  void after_append(LayerContext& layer) const override {
    auto* next = dynamic_cast<NextBlock*>(layer.cache.index.get());
    if (next == nullptr || layer.request == nullptr) return;
    const auto* recent = dynamic_cast<const RecentTokens*>(layer.request->index.get());
    KVARENA_ASSERT(recent != nullptr, "the request's memory began with the prompt");
    while (layer.cache.tail().entries(0) - (next->begin + block_) >= 1 + recent->count) cut(layer, *next);
  }

 private:
  static double ratio(double decay, int64_t layer, int64_t layers) {
    return (1.0 - decay) * (std::cos(std::numbers::pi * static_cast<double>(layer) / static_cast<double>(layers)) + 1) /
               2 +
           decay;
  }
  static int64_t share(double of, int64_t tokens) { return static_cast<int64_t>(static_cast<double>(tokens) * of); }
  /// Step of the weights of `count` votes.
  double slope(int64_t count) const {
    return count < 2 ? 0.0 : (distance_weight_ - 1) / static_cast<double>(count - 1);
  }
  int64_t voters(int64_t tokens) const { return std::min(tokens, 1 + share(recent_ratio_, tokens)); }

  /// The next block's best entries stay, of all heads alike.
  void cut(LayerContext& layer, NextBlock& next) const {
    EntrySegment& tail = layer.cache.tail();
    const int64_t n = tail.entries(0);
    const int64_t rows = n - (next.begin + block_);
    const std::span<const float> sums = tail.entry_scores(0);
    std::vector<float> scores;
    for (int64_t i = next.begin; i < next.begin + block_; ++i) {
      scores.push_back(static_cast<float>(sums[2 * i] + slope(rows) * sums[2 * i + 1]));
    }
    const double most = static_cast<double>(block_) * generated_keep_;
    const auto count =
        std::max<int64_t>(1, static_cast<int64_t>(most * ratio(generated_decay_, layer.layer, layer.layers)));
    if (count < block_) {
      std::vector<int32_t> kept(static_cast<size_t>(next.begin));
      std::iota(kept.begin(), kept.end(), 0);
      for (const int32_t i : select_best(scores, count, {})) kept.push_back(static_cast<int32_t>(next.begin) + i);
      for (int64_t i = next.begin + block_; i < n; ++i) kept.push_back(static_cast<int32_t>(i));
      const auto heads = static_cast<size_t>(layer.cache.shape().kv_heads);
      tail.keep(std::vector<std::vector<int32_t>>(heads, kept));
      layer.activity.entries_dropped += (block_ - count) * static_cast<int64_t>(heads);
    }
    next.begin += count;
  }

  double decay_ = 0.9;
  double recent_ratio_ = 0.2;
  int64_t interval_ = 1;
  int64_t min_context_ = 64;
  int64_t sinks_ = 4;
  double distance_weight_ = 1.2;
  int64_t block_ = 16;
  double generated_decay_ = 0.1;
  double generated_keep_ = 0.9;
  bool decoding_ = true;
};

KVARENA_METHOD(PyramidInfer, Family::compression,
               {.name = "pyramidinfer",
                .title = "PyramidInfer",
                .summary = "Tokens leave the prompt from layer to layer; deeper layers never compute them.",
                .paper = "arXiv:2405.12532, section 4"});

}  // namespace
}  // namespace kvarena
