#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/core/error.h"
#include "harness/method/entry_scores.h"
#include "harness/method/prompt_blocks.h"
#include "harness/method/selection.h"

namespace kvarena {
namespace {

/// Sums over blocks of a row.
std::vector<float> block_sums(const std::vector<float>& row, int64_t block) {
  std::vector<float> sums(static_cast<size_t>(blocks_of(std::ssize(row), block)));
  for (size_t i = 0; i < row.size(); ++i) sums[i / static_cast<size_t>(block)] += row[i];
  return sums;
}

/// Indices from the largest number to the smallest; of equals the lower index.
std::vector<int32_t> descending(std::span<const float> numbers) {
  std::vector<int32_t> order(numbers.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return numbers[a] > numbers[b]; });
  return order;
}

/// How many of the largest numbers have a sum of at most `share`.
int64_t within(std::span<const float> numbers, double share) {
  double sum = 0;
  int64_t count = 0;
  for (const int32_t i : descending(numbers)) {
    sum += numbers[i];
    if (sum > share) break;
    ++count;
  }
  return count;
}

/// Square root of the Jensen-Shannon divergence; NaN where a probability is 0, as in the authors' code.
double distance(std::span<const float> p, std::span<const float> q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double a = p[i], b = q[i], mean = (a + b) / 2;
    sum += (a * std::log(a / mean) + b * std::log(b / mean)) / 2;
  }
  return std::sqrt(sum);
}

/// Products of rows [a, dim] and [b, dim].
std::vector<float> products(const std::vector<float>& a, const std::vector<float>& b, int64_t dim) {
  std::vector<float> all;
  for (size_t i = 0; i < a.size(); i += static_cast<size_t>(dim)) {
    for (size_t j = 0; j < b.size(); j += static_cast<size_t>(dim))
      all.push_back(std::inner_product(&a[i], &a[i] + dim, &b[j], 0.0F));
  }
  return all;
}

/// Chooses blocks for each head by what its last `block` queries attend to, as many as cover the share `gamma` of that.
///   vertical   attention by columns, slash by diagonals: of each as many of the largest as cover gamma, in blocks
///   query-aware  heads where softmax of (mean of the last queries . mean keys of blocks) is close to their attention
///                by blocks (square root of the Jensen-Shannon divergence below tau): all pairs of blocks of queries
///                and keys are ranked together by softmax of their means, as many as cover gamma; of columns and
///                diagonals they have `min_budget` alone
/// The first block of columns and the diagonal are always among the chosen. Lai et al. 2025, FlexPrefill,
/// arXiv:2502.20766, sections 3.2 and 3.3, algorithms 2 to 4; get_active_blocks of ByteDance-Seed/FlexPrefill
/// (a24b27b), whose defaults these are. As there, columns are counted in blocks of 128 whatever `block` is.
class FlexPrefill final : public PrefillPattern {
 public:
  void parameters(ParameterVisitor& p) override {
    p("gamma", gamma_).above(0).max(1).doc("share of attention to cover");
    p("tau", tau_).min(0).max(1).doc("divergence below which a head chooses by means of blocks");
    p("min_budget", min_budget_).min(1).doc("entries of columns, and of diagonals, that a head has at least");
    p("block", block_).min(16).doc("queries, and keys, that are chosen together");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (block_ % 16 == 0) return;
    problems.push_back(
        describe({.place = place + ".block", .found = fmt::format("{}", block_), .expected = "a multiple of 16"}));
  }

  PromptRanges attended(const LayerContext& layer, const LayerQueries& queries) const override {
    const EntrySegment& entries = layer.cache.tail();
    const LayerShape& shape = entries.shape();
    const int64_t n = queries.q_len;
    if (n <= std::max(2 * block_, blocks_of(min_budget_, block_) * block_)) return {};
    std::vector<BlockMask> heads;
    std::vector<float> means;
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      if (head % shape.group() == 0) means = mean_keys(entries, head / shape.group(), block_);
      heads.push_back(mask_of(entries, queries, head, means));
    }
    return ranges_of(heads, n, block_);
  }

 private:
  BlockMask mask_of(const EntrySegment& entries, const LayerQueries& queries, int64_t head,
                    const std::vector<float>& means) const {
    std::vector<float> attention = last_attention(entries, queries, head, block_);
    std::vector<float> vertical = column_sums(attention, block_), slash = diagonal_sums(attention, block_);
    for (std::vector<float>* sums : {&vertical, &slash}) {
      for (float& sum : *sums) sum /= static_cast<float>(block_);
    }
    const int64_t least = blocks_of(min_budget_, block_);
    int64_t columns = std::max(least, (within(vertical, gamma_) + 1) / 128 + 1);
    int64_t diagonals = std::max(least, (within(slash, gamma_) + 1) / 128 + 1);
    const std::vector<float> by_block = block_sums(vertical, block_);
    const bool aware = distance(attention_of_means(queries, entries.shape(), head, means), by_block) < tau_;
    if (aware) columns = diagonals = least;

    BlockMask mask(std::ssize(by_block));
    const int64_t last = mask.blocks() - 1;
    for (const int32_t column : select_best(by_block, columns, {.sinks = 1})) {
      for (int64_t row = column; row <= last; ++row) mask.choose(row, column);
    }
    for (const int32_t diagonal : select_best(block_sums(slash, block_), diagonals, {.recent = 1})) {
      for (int64_t row = last - diagonal; row <= last; ++row) mask.choose(row, row - (last - diagonal));
    }
    if (aware) choose_pairs(queries, entries.shape(), head, means, mask);
    return mask;
  }

  /// Softmax over blocks of the product of the mean of the last queries and mean keys.
  std::vector<float> attention_of_means(const LayerQueries& queries, const LayerShape& shape, int64_t head,
                                        const std::vector<float>& means) const {
    LayerQueries last = queries;
    last.q += (queries.q_len - block_) * queries.q_stride;
    last.q_len = block_;
    std::vector<float> row = products(mean_queries(last, shape, head, block_), means, shape.head_dim);
    softmax_rows(row, 1, attention_scale(shape));
    return row;
  }

  /// Adds the pairs of blocks with the largest softmax of their means, all rows' ranked together.
  void choose_pairs(const LayerQueries& queries, const LayerShape& shape, int64_t head, const std::vector<float>& means,
                    BlockMask& mask) const {
    const int64_t blocks = mask.blocks();
    std::vector<float> scores = products(mean_queries(queries, shape, head, block_), means, shape.head_dim);
    for (int64_t row = 0; row < blocks; ++row) {
      const std::span<float> all =
          std::span(scores).subspan(static_cast<size_t>(row * blocks), static_cast<size_t>(blocks));
      softmax_rows(all.first(static_cast<size_t>(row + 1)), 1, attention_scale(shape));
      std::ranges::fill(all.subspan(static_cast<size_t>(row + 1)), 0.0F);
    }
    const std::vector<int32_t> order = descending(scores);
    const int64_t count = within(scores, gamma_ * static_cast<double>(blocks));
    for (int64_t i = 0; i < count; ++i) mask.choose(order[i] / blocks, order[i] % blocks);
  }

  double gamma_ = 0.9;
  double tau_ = 0.1;
  int64_t min_budget_ = 512;
  int64_t block_ = 128;
};

KVARENA_PREFILL(FlexPrefill,
                {.name = "flexprefill",
                 .title = "FlexPrefill",
                 .summary = "Heads attend to as many columns, diagonals or pairs of blocks as cover a share.",
                 .paper = "arXiv:2502.20766, section 3"});

}  // namespace
}  // namespace kvarena
