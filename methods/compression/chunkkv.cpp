#include <ATen/ATen.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>

#include "harness/method/wrapping_scorer.h"

namespace kvarena {
namespace {

/// Whole chunks, so that what belongs together stays together.  Another method's scores are summed over kv heads and
/// averaged over each chunk (the last one may be shorter); of C chunks the best max(1, int(C keep)) stay, the same for
/// every head, so the entries kept are about the budget. partial = true fills the budget exactly with the front of the
/// next best chunk. Entries that the other method protects count as its largest score plus one, as in kvpress; a
/// prompt shorter than a chunk is left to that method. The paper's recommended length is 10, kvpress's default 20.
/// The paper's reuse of one layer's choice for the next is not part of it.  Decoding keeps everything.
/// spiky > 0 (kvpress's EntropyGatedChunkKVPress, chunk_size 10, spiky 4): chunks are taken from the best mean down; of
/// one whose mean reaches the median while the entropy of its scores is below the median, the best `spiky` entries
/// alone. What is left of the budget goes to the best entries of all, so the budget is met exactly. Liu et al. 2025,
/// arXiv:2502.00299, Algorithm 1; kvpress, chunkkv_press.py.
class ChunkKv final : public WrappingScorer {
 public:
  ChunkKv() : WrappingScorer(R"({"name":"snapkv"})") {}

  void parameters(ParameterVisitor& p) override {
    WrappingScorer::parameters(p);
    p("chunk_size", chunk_size_).min(1).doc("entries a chunk");
    p("partial", partial_).doc("fill the budget exactly, with a part of one chunk");
    p("spiky", spiky_).min(0).doc("entries kept of a good chunk of low entropy; 0 = chunks stay whole");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    WrappingScorer::check(place, problems);
    if (spiky_ > 0 && spiky_ >= chunk_size_)
      problems.push_back(place + ".spiky: found as many entries as a chunk has, expected fewer");
  }
  bool evicts_while_decoding() const override { return false; }

  void refine(const LayerView& view, LayerScores& scores, HeadBudgets& budgets) const override {
    const int64_t n = view.n();
    if (n < chunk_size_ || *std::ranges::min_element(budgets) >= n) return;
    const std::vector<float> sums = summed(scores, n);
    if (spiky_ > 0) {
      for (size_t head = 0; head < budgets.size(); ++head) scores.heads[head] = gated(sums, budgets[head]);
      return;
    }
    const std::vector<float> means = chunk_means(sums);
    const auto chunks = static_cast<int64_t>(means.size());
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      std::vector<float>& row = scores.heads[head];
      if (!partial_) {
        // As a fraction of the chunks; int(C keep) and not by way of the rounded number of entries.
        const Division even{.share = scores.share, .layers = {}};
        const double share = budgets[head] == even.capacity() ? scores.share : static_cast<double>(budgets[head]);
        const auto wanted = static_cast<int64_t>(static_cast<double>(chunks) * share / static_cast<double>(n) + 1e-9);
        budgets[head] = 0;
        for (const int32_t chunk : select_best(means, std::max<int64_t>(1, wanted), {})) {
          budgets[head] += std::min(chunk_size_, n - chunk * chunk_size_);
        }
      }
      for (int64_t i = 0; i < n; ++i) row[i] = means[i / chunk_size_];
    }
  }
  /// Chunks know no protected entries; the other method's count by their score.
  Protection protect(int64_t /*budget*/) const override { return {}; }

 private:
  /// Scores summed over heads; of an entry that the other method protects the largest score plus one, a head.
  [[nodiscard]] std::vector<float> summed(const LayerScores& scores, int64_t n) const {
    const Protection kept = WrappingScorer::protect(Division{.share = scores.share, .layers = {}}.capacity());
    float largest = std::numeric_limits<float>::lowest();
    for (const auto& row : scores.heads) {
      largest = std::max(largest, *std::max_element(row.begin(), row.end()));
    }
    std::vector<float> sums;
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (const auto& row : scores.heads) sum += i < kept.sinks || i >= n - kept.recent ? largest + 1 : row[i];
      sums.push_back(static_cast<float>(sum));
    }
    return sums;
  }
  /// Chunk `index` of entries' sums.
  [[nodiscard]] std::span<const float> chunk(std::span<const float> sums, size_t index) const {
    const auto size = static_cast<size_t>(chunk_size_);
    return sums.subspan(index * size, std::min(size, sums.size() - index * size));
  }
  [[nodiscard]] size_t chunks(std::span<const float> sums) const {
    return (sums.size() + static_cast<size_t>(chunk_size_) - 1) / static_cast<size_t>(chunk_size_);
  }
  [[nodiscard]] std::vector<float> chunk_means(std::span<const float> sums) const {
    std::vector<float> means;
    for (size_t index = 0; index < chunks(sums); ++index) {
      const auto own = chunk(sums, index);
      means.push_back(
          static_cast<float>(std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(own.size())));
    }
    return means;
  }

  /// Entropy of a chunk's scores as shares of their sum, over that of equal ones; scores are raised to 0 first.
  static float entropy(std::span<const float> own) {
    constexpr double kEpsilon = 1e-8;
    if (own.size() == 1) return 0;
    const double low = std::min(0.0F, std::ranges::min(own));
    const double sum = std::accumulate(own.begin(), own.end(), 0.0) - low * static_cast<double>(own.size());
    double total = 0;
    for (const float score : own) {
      const double p = (score - low) / (sum + kEpsilon);
      total -= p * std::log(p + kEpsilon);
    }
    return static_cast<float>(std::clamp(total / std::log(static_cast<double>(own.size())), 0.0, 1.0));
  }
  /// The middle value, of an even number the lower one.
  static float median(std::vector<float> values) {
    const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
    std::ranges::nth_element(values, middle);
    return *middle;
  }

  /// 1 for the `budget` entries that stay, 0 for the others.
  [[nodiscard]] std::vector<float> gated(std::span<const float> sums, int64_t budget) const {
    const std::vector<float> means = chunk_means(sums);
    std::vector<float> entropies;
    for (size_t index = 0; index < means.size(); ++index) entropies.push_back(entropy(chunk(sums, index)));
    const float good = median(means), even = median(entropies);
    std::vector<float> stays(sums.size(), 0.0F);
    const auto take = [&](std::span<const float> from, int64_t first, int64_t count) {
      for (const int32_t i : select_best(from, count, {})) stays[static_cast<size_t>(first + i)] = 1;
      budget -= count;
    };
    std::vector<int64_t> order(means.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), [&](int64_t index) { return means[static_cast<size_t>(index)]; });
    for (const int64_t index : order) {
      const auto own = chunk(sums, static_cast<size_t>(index));
      const bool spiky = means[static_cast<size_t>(index)] >= good && entropies[static_cast<size_t>(index)] < even;
      const int64_t most = spiky ? std::min<int64_t>(spiky_, std::ssize(own)) : std::ssize(own);
      take(own, index * chunk_size_, std::min(most, budget));
    }
    std::vector<float> rest(sums.begin(), sums.end());
    for (size_t i = 0; i < rest.size(); ++i) {
      if (stays[i] > 0) rest[i] = std::numeric_limits<float>::lowest();
    }
    take(rest, 0, budget);
    return stays;
  }

  int64_t chunk_size_ = 20;
  bool partial_ = false;
  int64_t spiky_ = 0;
};

KVARENA_SCORER(ChunkKv, {.name = "chunkkv",
                         .title = "ChunkKV",
                         .summary = "Keeps whole chunks of neighbouring entries, ranked by any method's scores.",
                         .paper = "arXiv:2502.00299, Algorithm 1"});

}  // namespace
}  // namespace kvarena
