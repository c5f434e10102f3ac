#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/random.h"
#include "harness/method/entry_scores.h"

namespace kvarena {
namespace {

/// The layer that draws are for.
struct LayerNumber final : public LayerIndex {
  int64_t layer = 0;

  [[nodiscard]] int64_t bytes() const override { return 0; }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<LayerNumber>(*this);
  }
};

/// Heavy entries and a sample of the others, as large as an error bound wants it.  Each query head attends to the
/// `sinks` first and `window` newest of n entries, to the `heavy` n entries between them of largest q.k, and to a
/// sample of the r entries between them: with w[i] = e^(q.k_i / sqrt(d)),
///   b0 = `base` r draws give the standard deviation s of w and, with what is attended anyway, an estimate D of its
///   sum, b = (z r s / (epsilon D))^2, from b0 to r, are drawn anew, z the normal quantile of 1 - `delta`,
/// and what they find of entries that are not heavy gets the weight r / b, so that the sum of weights is within
/// epsilon of attention's denominator with probability 1 - delta. No budget. Desai, Agrawal, Yang, Cuadron, Schroeder,
/// Zaharia, Gonzalez, Stoica 2025, arXiv:2510.05688, with true scores for the heavy entries; as in
/// xAlg-ai/sparse-attention-hub (1a048c9), research_attention/maskers, and its defaults: draws are of all r entries,
/// heavy ones too, and with replacement, each entry counted once.
class VAttention final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("heavy", heavy_).min(0).max(1).doc("share of all entries that are attended for their scores");
    p("base", base_).min(0).max(1).doc("share of the entries between sinks and window that is drawn at least");
    p("epsilon", epsilon_).above(0).max(1).doc("relative error of the sum of weights");
    p("delta", delta_).above(0).max(0.5).doc("probability that the error is larger");
    p("sinks", sinks_).min(0).doc("first entries, always attended");
    p("window", window_).min(1).doc("newest entries, always attended");
    p("seed", seed_).min(0).doc("of the draws");
  }
  bool budgeted() const override { return false; }
  bool weighs() const override { return true; }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_, .recent = window_}; }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& /*shape*/, const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<LayerNumber>();
  }
  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& /*seen*/) const override {
    static_cast<LayerNumber&>(index).layer = layer.layer;
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    if (among.size() < 2) return {};
    const LayerShape& shape = entries.shape();
    const int64_t n = entries.entries(0), layer = static_cast<const LayerNumber&>(index).layer;
    Candidates heaviest = among;
    heaviest.count = static_cast<int64_t>(heavy_ * static_cast<double>(n));
    std::vector<float> scores(static_cast<size_t>(shape.group() * n));
    Selection selection;
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      const int64_t member = head % shape.group();
      if (member == 0) inner_products(entries, queries, head / shape.group(), scores);
      const auto own = std::span(scores).subspan(static_cast<size_t>(member * n), static_cast<size_t>(n));
      require_numbers(own, "vattention");
      const RandomStream draws(static_cast<uint64_t>(seed_),
                               fmt::format("vattention {} {} {}", layer, head, queries.position));
      add(best_candidates(own, heaviest, "vattention"), weights(own, attention_scale(shape)), among, draws, selection);
    }
    return selection;
  }

 private:
  /// e^(scale score), over their largest.
  static std::vector<double> weights(std::span<const float> scores, float scale) {
    const double top = *std::ranges::max_element(scores);
    std::vector<double> all;
    for (const float score : scores) all.push_back(std::exp((score - top) * scale));
    return all;
  }

  /// Adds a query head's list: heavy entries, which have no bias, and its sample.
  void add(const std::vector<int32_t>& heavy, const std::vector<double>& weights, const Candidates& among,
           const RandomStream& draws, Selection& selection) const {
    const auto range = static_cast<double>(among.size());
    const int64_t first_draws = std::max<int64_t>(2, static_cast<int64_t>(base_ * range));
    double attended = 0;
    for (int64_t entry = 0; entry < among.first; ++entry) attended += weights[entry];
    for (const int32_t entry : heavy) attended += weights[entry];
    for (auto entry = static_cast<size_t>(among.last); entry < weights.size(); ++entry) attended += weights[entry];
    const int64_t count = wanted(attended, weights, drawn(among, draws, 0, first_draws), among.size());

    const std::vector<int32_t> sample = different(drawn(among, draws, first_draws, count));
    const auto bias = static_cast<float>(std::log((1 + kGuard) / (static_cast<double>(count) / range + kGuard)));
    std::vector<int32_t>& list = selection.lists.emplace_back();
    std::ranges::set_union(heavy, sample, std::back_inserter(list));
    std::vector<float>& biases = selection.biases.emplace_back();
    for (const int32_t entry : list) biases.push_back(std::ranges::binary_search(heavy, entry) ? 0 : bias);
  }

  /// The draws that keep the error, where `first` of `range` entries were drawn; no fewer than those, at most `range`.
  [[nodiscard]] int64_t wanted(double attended, const std::vector<double>& weights, const std::vector<int32_t>& first,
                               int64_t range) const {
    constexpr double kLeast = 1e-8;  // of deviations and errors, as there
    const auto count = static_cast<double>(first.size());
    double sum = 0, squares = 0, estimate = attended;
    for (const int32_t entry : first) sum += weights[entry];
    for (const int32_t entry : first) squares += std::pow(weights[entry] - sum / count, 2);
    for (const int32_t entry : different(first)) estimate += weights[entry] * static_cast<double>(range) / count;
    const double deviation = std::max(std::sqrt(squares / (count - 1)), kLeast);
    const double quantile = at::special_ndtri(at::scalar_tensor(1 - delta_, at::kDouble)).item<double>();
    const double ratio = quantile * deviation * static_cast<double>(range) / std::max(epsilon_ * estimate, kLeast);
    return static_cast<int64_t>(std::clamp(ratio * ratio, count, static_cast<double>(range)));
  }

  /// Candidates of draws [first, first + count), as drawn.
  static std::vector<int32_t> drawn(const Candidates& among, const RandomStream& draws, int64_t first, int64_t count) {
    std::vector<int32_t> entries;
    for (int64_t i = first; i < first + count; ++i) {
      const uint64_t place = draws.below(static_cast<uint64_t>(among.size()), static_cast<uint64_t>(i));
      entries.push_back(static_cast<int32_t>(among.first + static_cast<int64_t>(place)));
    }
    return entries;
  }
  /// Each entry once, ascending.
  static std::vector<int32_t> different(std::vector<int32_t> entries) {
    std::ranges::sort(entries);
    entries.erase(std::ranges::unique(entries).begin(), entries.end());
    return entries;
  }

  static constexpr double kGuard = 1e-6;  // beside probabilities that are divided by, as there

  double heavy_ = 0.1;
  double base_ = 0.1;
  double epsilon_ = 0.25;
  double delta_ = 0.25;
  int64_t sinks_ = 128;
  int64_t window_ = 128;
  int64_t seed_ = 0;
};

KVARENA_RETRIEVER(VAttention, {.name = "vattention",
                               .title = "vAttention",
                               .summary = "Attends to the best and to a weighted sample, sized by an error bound.",
                               .paper = "arXiv:2510.05688"});

}  // namespace
}  // namespace kvarena
