#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <queue>

#include "harness/core/error.h"
#include "harness/method/fitter.h"
#include "harness/method/tensors.h"
#include "harness/method/wrapping_scorer.h"

namespace kvarena {
namespace {

constexpr int64_t kRatios = 99;  // shares of all entries that leave, 0.01 .. 0.99

/// A head's entries between sinks and window, as its scorer would let them go.
struct HeadEntries {
  size_t layer = 0, head = 0;
  int64_t length = 0, kept = 0;  // of all its entries
  std::vector<double> worth;     // of those between, the best score first; the last one leaves next
};

/// The slopes of the lower convex hull of the running sums of `values` from the end: what is lost an entry when runs of
/// entries leave together, never more than the entry before.
std::vector<double> on_lower_hull(const std::vector<double>& values) {
  std::vector<double> lost = {0};
  for (auto value = values.rbegin(); value != values.rend(); ++value) lost.push_back(lost.back() + *value);
  std::vector<size_t> hull = {0};
  for (size_t i = 1; i < lost.size(); ++i) {
    const auto above = [&](size_t a, size_t b) {  // whether b is not below the line from a to i
      return static_cast<double>(b - a) * (lost[i] - lost[a]) <= static_cast<double>(i - a) * (lost[b] - lost[a]);
    };
    while (hull.size() >= 2 && above(hull[hull.size() - 2], hull.back())) hull.pop_back();
    hull.push_back(i);
  }
  std::vector<double> slopes(values.size());
  for (size_t h = 1; h < hull.size(); ++h) {
    const double slope = (lost[hull[h]] - lost[hull[h - 1]]) / static_cast<double>(hull[h] - hull[h - 1]);
    std::fill(slopes.end() - static_cast<int64_t>(hull[h]), slopes.end() - static_cast<int64_t>(hull[h - 1]), slope);
  }
  return slopes;
}

/// Shares of each head's entries that leave, [kRatios, layers, heads], when of all heads' entries whichever is worth
/// least leaves first. No head goes below 1% of its entries, nor below `protected_count`.
FittedTensor shares_that_leave(std::vector<HeadEntries> heads, int64_t layers, int64_t protected_count) {
  using Next = std::tuple<double, size_t, size_t, size_t>;  // worth, layer, head, place in `heads`
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  const auto offer = [&](size_t i) {
    if (!heads[i].worth.empty()) next.emplace(heads[i].worth.back(), heads[i].layer, heads[i].head, i);
  };
  int64_t all = 0, gone = 0;
  for (size_t i = 0; i < heads.size(); ++i) {
    all += heads[i].length;
    offer(i);
  }
  FittedTensor shares{.shape = {kRatios, layers, std::ssize(heads) / layers}, .values = {}};
  for (int64_t step = 1; step <= kRatios; ++step) {
    const int64_t due = std::llrint(static_cast<double>(step) / 100 * static_cast<double>(all));
    while (gone < due && !next.empty()) {
      const size_t i = std::get<3>(next.top());
      next.pop();
      HeadEntries& head = heads[i];
      const int64_t least = std::max<int64_t>(std::llrint(0.01 * static_cast<double>(head.length)), protected_count);
      if (head.kept <= least) continue;
      --head.kept;
      ++gone;
      head.worth.pop_back();
      offer(i);
    }
    for (const HeadEntries& head : heads) {
      shares.values.push_back(
          static_cast<float>(1 - static_cast<double>(head.kept) / static_cast<double>(head.length)));
    }
  }
  return shares;
}

/// Curves for a scorer: how much of each head leaves when the least is lost of what a text's last tokens attend to.
///   u[j,i] = max over the last 64 queries t and the group's heads h of  p[t,h,i] |v[i] W_O[h]| / sum |v W_O|,
/// the sum over the layer's heads and entries. In each head entries go from the scorer's worst to its best; what they
/// take along of u is convex from below (on_lower_hull), and heads of all layers compete. Mean over texts.
class CurveFitter final : public Fitter {
 public:
  CurveFitter(const Nested<Scorer>& scorer, int64_t sinks, int64_t window)
      : scorer_(scorer), sinks_(sinks), window_(window) {}

  FittedRequest artifact() const override { return {.method = "lukv", .variant = scorer_.name(), .path = {}}; }
  Needs needs() const override {
    Needs needs = scorer_->needs();
    needs.window = needs.window == kWholePrompt ? kWholePrompt : needs.window + kFuture;
    needs.output_projection = true;
    return needs;
  }
  int64_t sample_tokens() const override { return 1024; }
  bool joint() const override { return true; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    const int64_t n = layer.n() - kFuture;
    if (n <= sinks_ + window_) {
      fail({.place = fmt::format("lukv: layer {}", layer.layer()),
            .found = fmt::format("a text of {} entries", layer.n()),
            .expected = fmt::format("more than {}", sinks_ + window_ + kFuture)});
    }
    std::vector<int32_t> before(static_cast<size_t>(n));
    std::iota(before.begin(), before.end(), 0);
    const LayerView prompt = layer.part(std::vector(static_cast<size_t>(layer.kv_heads()), before));
    return {{"scores", weight_of(scorer_->score(prompt))}, {"utility", weight_of(utility(layer, n))}};
  }
  FittedTensors join(std::vector<FittedTensors> layers) const override {
    std::vector<HeadEntries> heads;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const at::Tensor scores = tensor_of(layers[layer].at("scores"));
      const at::Tensor utility = tensor_of(layers[layer].at("utility"));
      for (int64_t head = 0; head < scores.size(0); ++head) {
        heads.push_back(entries_of(scores[head], utility[head]));
        heads.back().layer = layer;
        heads.back().head = static_cast<size_t>(head);
      }
    }
    FittedTensor curves = shares_that_leave(std::move(heads), std::ssize(layers), sinks_ + window_);
    curves.shape.insert(curves.shape.begin(), 1);
    return {{"curves", std::move(curves)}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    return {{"curves", weight_of(joined(records, "curves").to(at::kDouble).mean(0))}};
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override { return layers.front(); }

 private:
  static constexpr int64_t kFuture = 64;

  /// u of the first n entries, [kv_heads, n].
  static at::Tensor utility(const LayerView& layer, int64_t n) {
    at::Tensor most = at::zeros({layer.q_heads(), n});
    layer.for_each_query_block(kFuture, [&](const at::Tensor& scores, int64_t /*first*/) {
      most = at::maximum(most, scores.softmax(-1).narrow(-1, 0, n).amax(1));
    });
    const at::Tensor values = layer.values().narrow(1, 0, n), projection = layer.output_projection();
    std::vector<at::Tensor> norms;
    for (int64_t head = 0; head < layer.q_heads(); ++head) {
      norms.push_back(values[head / layer.group()].matmul(projection[head]).norm(2, -1));
    }
    const at::Tensor lengths = at::stack(norms);
    return layer.group_reduce(most * (lengths / lengths.sum()), "max");
  }

  [[nodiscard]] HeadEntries entries_of(const at::Tensor& scores, const at::Tensor& utility) const {
    const int64_t n = scores.size(0), between = n - sinks_ - window_;
    const at::Tensor order = scores.narrow(0, sinks_, between).argsort(/*stable=*/true, 0, /*descending=*/true);
    const at::Tensor lost = utility.narrow(0, sinks_, between).index_select(0, order).to(at::kDouble);
    const auto* const values = lost.data_ptr<double>();
    return {.length = n, .kept = n, .worth = on_lower_hull({values, values + between})};
  }

  Nested<Scorer> scorer_;
  int64_t sinks_, window_;
};

/// Budgets of heads from curves made offline, over any method's scores.  A curve has, for 99 shares of all entries that
/// leave, the share that leaves of each layer and head. Of a layer's heads each keeps its share of the n entries,
///   kept[j] = (1 - curve[round(100 (1 - keep)) - 1, l, j]) n,
/// rounded down, and what the layer's sum, rounded, lacks goes to the heads with the largest remainders. The first
/// `sinks` and the newest `window` entries stay. Curves are those of one model and scorer, and are averages over texts:
/// a prompt keeps about its budget. Decoding keeps everything. Tang, Jiao, Chen, Liu, Li, Chen 2026, arXiv:2602.08585,
/// as kvpress's LUKVPress. Weights: a published curve (.npy, [99, layers, kv_heads]), or `kvarena fit`, by the authors'
/// rule (baidu-baige/LU-KV, evaluation/curve_data), with two differences: they sample 64 tokens of answers to questions
/// about a text, the fit takes the text's own last 64; and scorers that look back from the prompt's end
/// (prompt_attention, query moments) see these too.
class LuKv final : public WrappingScorer {
 public:
  LuKv() : WrappingScorer(R"({"name":"expected_attention","epsilon":0.02})") {}

  void parameters(ParameterVisitor& p) override {
    p("keep", keep_)
        .above(0)
        .max(1)
        .required()
        .doc("fraction of all entries that stay, on average over the curves' texts");
    WrappingScorer::parameters(p);
    p("sinks", sinks_).min(0).doc("first entries, kept");
    p("window", window_).min(0).doc("newest entries, kept");
    p("weights", weights_).doc("file of published curves; empty = the project's for the model and the scorer");
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<CurveFitter>(wrapped(), sinks_, window_); }
  bool budgeted() const override { return false; }
  bool evicts_while_decoding() const override { return false; }

  Protection protect(int64_t budget) const override {
    const Protection own = WrappingScorer::protect(budget);
    return {.sinks = std::max(own.sinks, sinks_), .recent = std::max(own.recent, window_)};
  }
  void refine(const LayerView& view, LayerScores& scores, HeadBudgets& budgets) const override {
    if (keep_ >= 1) return;
    const auto weights = view.model().fitted({.method = "lukv", .variant = wrapped().name(), .path = weights_});
    const FittedTensor& curves = weights->at("curves", {kRatios, view.layers(), -1});
    const int64_t ratio = std::clamp<int64_t>(std::llrint(100 * (1 - keep_)) - 1, 0, kRatios - 1);
    const int64_t first = (ratio * view.layers() + view.layer()) * curves.shape[2] + view.first_head();
    budgets = divided({curves.values.begin() + first, curves.values.begin() + first + view.kv_heads()}, view.n());
    WrappingScorer::refine(view, scores, budgets);
  }

 private:
  /// Entries that heads keep of n each, in float32 as the press counts.
  static HeadBudgets divided(const std::vector<float>& leave, int64_t n) {
    const auto heads = std::ssize(leave);
    std::vector<float> rests;
    HeadBudgets kept;
    float sum = 0;
    for (const float share : leave) {
      const float ideal = std::clamp(1 - share, 0.0F, 1.0F) * static_cast<float>(n);
      kept.push_back(static_cast<int64_t>(ideal));
      rests.push_back(ideal - std::floor(ideal));
      sum += ideal;
    }
    const int64_t total = std::clamp<int64_t>(std::llrint(sum), heads, heads * n);
    const int64_t missing = total - std::accumulate(kept.begin(), kept.end(), int64_t{0});
    for (const int32_t head : select_best(rests, std::clamp<int64_t>(missing, 0, heads), {})) ++kept[head];
    for (int64_t& count : kept) count = std::clamp<int64_t>(count, 1, n);
    return kept;
  }

  double keep_ = 1;
  int64_t sinks_ = 4;
  int64_t window_ = 1;
  std::string weights_;
};

KVARENA_SCORER(LuKv,
               {.name = "lukv",
                .title = "LU-KV",
                .summary = "Gives heads the budgets that long horizons asked for offline, over any method's scores.",
                .paper = "arXiv:2602.08585"});

}  // namespace
}  // namespace kvarena
