#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/cache/attend_plan.h"
#include "harness/method/budget.h"
#include "harness/method/registry.h"
#include "harness/method/selection.h"
#include "kernels/matmul/row_reductions.h"

namespace kvarena {
namespace {

/// A layer's state while decoding.
struct Memory final : public LayerIndex {
  int64_t capacity = 0;  // entries a head may hold; 0 = all
  double threshold = 0;  // similarity that an evicted entry must reach to be merged
  [[nodiscard]] int64_t bytes() const override { return sizeof(capacity) + sizeof(threshold); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& /*ledger*/) const override {
    auto copy = std::make_unique<Memory>();
    copy->capacity = capacity;
    copy->threshold = threshold;
    return copy;
  }
};

/// Evicted entries of one head and where they would go.
struct Leaving {
  std::vector<int32_t> kept;       // ascending
  std::vector<int32_t> evicted;    // ascending
  std::vector<int32_t> nearest;    // kept entry of largest cosine to each evicted one
  std::vector<double> similarity;  // that cosine
  std::vector<float> keys;         // of the whole head, [entries, head_dim]
  std::vector<float> values;
};

/// Heavy hitters whose losses are merged into their likes, with more room for layers of even attention.
///   layers   e_l = mean over heads of the min-max normalised variance of column sums;
///            share_l = clamp(softmax(-e)_l L keep, 0.01, 1); the first two layers and the last stay whole
///   evict    per head the smallest sum of attention, the first 4 entries and the recent half excepted
///   merge    u_e = largest cosine of k_e to a kept key; where the mean of u_e over heads reaches tau,
///            k_c and v_c become the mean of themselves and all u_e k_e, u_e v_e whose nearest is c
///   tau      the mean of u at first, then alpha tau + beta mean(u)
/// Wan et al. 2024, arXiv:2406.13035, section 3; alpha, beta 0.5 as in the authors' class (a comment there says 0.3 and
/// 0.7). They evict at the first decode step, here at the end of the prompt; they work on repeated keys, here per kv
/// head with sums over the group. `keep` is the share of the layers that are compressed. In models of fewer than 8
/// layers at most a quarter is left whole at either end.
class D2o final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    budget_.parameters(p);
    p("recent_share", recent_share_).min(0).max(1).doc("share of the budget that goes to the newest entries");
    p("alpha", alpha_).min(0).max(1).doc("weight of the old threshold");
    p("beta", beta_).min(0).max(1).doc("weight of the newest mean similarity");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    budget_.check(place, problems);
  }
  Needs needs() const override { return {.prompt_attention = true, .step_attention = true}; }

  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const override {
    if (budget_.unlimited() || layers.empty()) return;
    std::vector<double> evenness;
    for (size_t l = 0; l < layers.size(); ++l) evenness.push_back(concentration(layers[l], seen[l]));
    double total = 0;
    for (const double e : evenness) total += std::exp(-e);
    for (size_t l = 0; l < layers.size(); ++l) {
      auto memory = std::make_unique<Memory>();
      const double share = std::exp(-evenness[l]) / total * static_cast<double>(layers.size());
      memory->capacity = stays_whole(layers[l]) ? 0 : capacity(layers[l], share);
      layers[l].cache.index = std::move(memory);
      start_sums(layers[l], seen[l]);
      evict(layers[l], /*first=*/true);
    }
  }
  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override {
    if (budget_.unlimited()) return;
    EntrySegment& tail = layer.cache.tail();
    const LayerShape& shape = layer.cache.shape();
    const int64_t n = tail.entries(0);
    std::vector<float> sums(static_cast<size_t>(shape.q_heads * n));
    add_probabilities(tail.plan_newest(queries), lse, sums.data(), n);
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      const std::span<float> memory = tail.entry_scores(h / shape.group());
      for (int64_t i = 0; i < n; ++i) memory[i] += sums[h * n + i];
    }
  }
  HookAccess reach() const override { return HookAccess::rows; }
  void after_append(LayerContext& layer) const override {
    if (!budget_.unlimited()) evict(layer, /*first=*/false);
  }

 private:
  static constexpr int64_t kSinks = 4;

  static bool stays_whole(const LayerContext& layer) {
    const int64_t quarter = layer.layers / 4;
    return layer.layer < std::min<int64_t>(2, quarter) || layer.layer >= layer.layers - std::min<int64_t>(1, quarter);
  }

  /// e_l: near 0 where all heads but one are even, near 1 where all but one are peaked.
  static double concentration(const LayerContext& layer, const LayerObservations& seen) {
    const auto n = static_cast<double>(seen.entries);
    std::vector<double> variance;
    for (int64_t h = 0; h < layer.cache.shape().q_heads; ++h) {
      const float* row = seen.prompt_attention.data() + h * seen.entries;
      double sum = 0;
      double squares = 0;
      for (int64_t i = 0; i < seen.entries; ++i) {
        sum += row[i];
        squares += static_cast<double>(row[i]) * row[i];
      }
      variance.push_back(squares / n - sum / n * (sum / n));
    }
    const auto [least, most] = std::ranges::minmax(variance);
    double mean = 0;
    for (const double v : variance) mean += most > least ? (v - least) / (most - least) : 0.0;
    return mean / static_cast<double>(variance.size());
  }

  int64_t capacity(const LayerContext& layer, double share) const {
    const double mean = budget_.share(layer.prompt_tokens, layer.cache.shape(), layer.budgeted());
    const auto n = static_cast<double>(layer.prompt_tokens);
    const double own = n > 0 ? std::clamp(share * mean / n, 0.01, 1.0) * n : mean;
    return std::max<int64_t>(1, static_cast<int64_t>(std::floor(own + 1e-9)));
  }

  static void start_sums(LayerContext& layer, const LayerObservations& seen) {
    EntrySegment& tail = layer.cache.tail();
    tail.reserve_scores(1);
    for (int64_t h = 0; h < layer.cache.shape().q_heads; ++h) {
      const std::span<float> memory = tail.entry_scores(h / layer.cache.shape().group());
      for (int64_t i = 0; i < seen.entries; ++i) memory[i] += seen.prompt_attention[h * seen.entries + i];
    }
  }

  /// Chooses a head's entries that go, and their nearest of those that stay.
  Leaving choose(const LayerContext& layer, int64_t head, int64_t room) const {
    EntrySegment& tail = layer.cache.tail();
    const int64_t n = tail.entries(head);
    const int64_t d = layer.cache.shape().head_dim;
    const auto recent = static_cast<int64_t>(std::floor(recent_share_ * static_cast<double>(room) + 1e-9));
    Leaving leaving;
    leaving.kept = select_best(tail.entry_scores(head), room, {.sinks = kSinks, .recent = recent});
    auto next = leaving.kept.begin();
    for (int32_t i = 0; i < n; ++i) {
      if (next != leaving.kept.end() && *next == i) {
        ++next;
      } else {
        leaving.evicted.push_back(i);
      }
    }
    leaving.keys.resize(static_cast<size_t>(n * d));
    leaving.values.resize(static_cast<size_t>(n * d));
    tail.read(head, leaving.keys.data(), leaving.values.data());
    find_nearest(leaving, d);
    return leaving;
  }

  /// Cosines of all evicted to all kept keys; ties to the older entry.
  static void find_nearest(Leaving& leaving, int64_t d) {
    const at::Tensor keys = at::from_blob(leaving.keys.data(), {static_cast<int64_t>(leaving.keys.size()) / d, d});
    const at::Tensor units = keys / keys.norm(2, 1, /*keepdim=*/true).clamp_min(1e-12);
    const auto rows = [&](const std::vector<int32_t>& list) { return units.index_select(0, at::tensor(list)); };
    const at::Tensor kept = rows(leaving.kept);
    const at::Tensor evicted = rows(leaving.evicted);
    std::vector<float> largest(leaving.evicted.size());
    leaving.nearest.resize(largest.size());
    kernels::row_peaks({evicted.data_ptr<float>(), evicted.size(0), d},
                       kernels::pack_weights(kept.data_ptr<float>(), kept.size(0), d, kernels::DType::f32),
                       largest.data(), leaving.nearest.data());
    leaving.similarity.assign(largest.begin(), largest.end());
    for (int32_t& nearest : leaving.nearest) nearest = leaving.kept[nearest];
  }

  void evict(LayerContext& layer, bool first) const {
    auto& memory = static_cast<Memory&>(*layer.cache.index);
    EntrySegment& tail = layer.cache.tail();
    const int64_t n = tail.entries(0);
    if (memory.capacity == 0 || n <= memory.capacity) return;
    const int64_t heads = layer.cache.shape().kv_heads;
    std::vector<Leaving> leaving;
    for (int64_t head = 0; head < heads; ++head) leaving.push_back(choose(layer, head, memory.capacity));

    // The filter is one for all heads: the e-th evicted entry of each is judged by their mean.
    std::vector<double> mean(leaving.front().evicted.size(), 0.0);
    double all = 0;
    for (const Leaving& head : leaving) {
      for (size_t e = 0; e < mean.size(); ++e) mean[e] += head.similarity[e] / static_cast<double>(heads);
    }
    for (const double u : mean) all += u / static_cast<double>(mean.size());
    const bool known = memory.threshold > 0;
    memory.threshold = first || !known ? all : alpha_ * memory.threshold + beta_ * all;

    std::vector<std::vector<int32_t>> kept;
    for (int64_t head = 0; head < heads; ++head) {
      merge(layer, head, leaving[head], mean, memory.threshold);
      kept.push_back(std::move(leaving[head].kept));
    }
    tail.keep(kept);
    layer.activity.entries_dropped += static_cast<int64_t>(mean.size()) * heads;
  }

  /// Sums grow in the rows of the kept entries.
  static void merge(const LayerContext& layer, int64_t head, Leaving& leaving, const std::vector<double>& mean,
                    double threshold) {
    const int64_t d = layer.cache.shape().head_dim;
    std::vector<int64_t> joined(leaving.keys.size() / static_cast<size_t>(d), 1);
    for (size_t e = 0; e < leaving.evicted.size(); ++e) {
      if (mean[e] < threshold) continue;
      const int64_t from = leaving.evicted[e] * d;
      const int64_t to = leaving.nearest[e] * d;
      const auto u = static_cast<float>(leaving.similarity[e]);
      for (int64_t i = 0; i < d; ++i) {
        leaving.keys[to + i] += u * leaving.keys[from + i];
        leaving.values[to + i] += u * leaving.values[from + i];
      }
      ++joined[leaving.nearest[e]];
    }
    for (const int32_t c : leaving.kept) {
      if (joined[c] == 1) continue;
      float* const key = leaving.keys.data() + c * d;
      float* const value = leaving.values.data() + c * d;
      for (int64_t i = 0; i < d; ++i) {
        key[i] /= static_cast<float>(joined[c]);
        value[i] /= static_cast<float>(joined[c]);
      }
      layer.cache.tail().overwrite(head, c, key, value);
    }
  }

  Budget budget_;
  double recent_share_ = 0.5;
  double alpha_ = 0.5;
  double beta_ = 0.5;
};

KVARENA_METHOD(D2o, Family::compression,
               {.name = "d2o",
                .title = "D2O",
                .summary = "Heavy hitters by layer, with evicted entries merged into similar kept ones.",
                .paper = "arXiv:2406.13035, section 3"});

}  // namespace
}  // namespace kvarena
