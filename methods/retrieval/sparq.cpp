#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/indexed_segment.h"
#include "harness/method/entry_scores.h"

namespace kvarena {
namespace {

/// The mean value of a layer's entries.
struct MeanIndex final : public LayerIndex {
  MeanIndex(const LayerShape& shape, const LedgerPtr& ledger)
      : mean(shape, ledger),
        sums(static_cast<size_t>(shape.kv_heads * shape.head_dim), 0.0, LedgerAllocator<double>(ledger)),
        ledger(ledger) {}

  EntrySegment mean;          // of each head one entry, whose key is zero
  LedgerVector<double> sums;  // [kv_heads, head_dim]
  int64_t summed = 0;         // entries
  LedgerPtr ledger;

  [[nodiscard]] int64_t bytes() const override {
    return mean.bytes() + static_cast<int64_t>(sums.capacity() * sizeof(double));
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& to) const override {
    auto copy = std::make_unique<MeanIndex>(mean.shape(), to);
    copy->mean = std::move(static_cast<EntrySegment&>(*mean.clone(to)));
    copy->sums.assign(sums.begin(), sums.end());
    copy->summed = summed;
    return copy;
  }
};

/// Scores by a few channels, and the mean value for what is not attended.  Of each kv head the `rank` channels r with
/// the largest sum of |q| over its query heads give every entry the score
///   s[h,i] = q_h,r . k_i,r / sqrt(d |q_h,r|_1 / |q_h|_1)
/// and the entries with the largest sums of s over the group are attended exactly, the newest `local_share` of the
/// budget always among them. The mean value v of all entries stands for the rest: with a_h = sum of softmax(s[h]) over
/// what is attended, the output is a_h attention + (1 - a_h) v, here one more entry of the softmax, of the logit that
/// gives it the weight 1 - a_h. `mean: false` leaves it out. Ribar, Chelombiev, Hudlass-Galley, Blake, Luschi, Orr
/// 2024, arXiv:2312.04985, section 3 and algorithm 1; AnnAttention of graphcore-research/llm-inference-research,
/// llminference/methods/ann_attention.py, whose budget k does not count the query's own entry and whose runs take a
/// quarter of k for the newest entries. Its scores read a part of each key; here they take the time of all of it.
class SparQ final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("rank", rank_).min(1).doc("channels of keys that scores read, at most all");
    p("local_share", local_share_).min(0).max(1).doc("share of the budget for the newest entries");
    p("mean", mean_).doc("the mean value stands for the entries that are not attended");
  }
  bool weighs() const override { return true; }
  Protection protect(int64_t budget) const override {
    return {.recent = 1 + static_cast<int64_t>(local_share_ * static_cast<double>(budget - 1) + 1e-9)};
  }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    return std::make_unique<MeanIndex>(shape, ledger);
  }
  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& own = static_cast<MeanIndex&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t d = shape.head_dim;
    if (own.summed != index.entries) {  // drafts were taken back
      std::ranges::fill(own.sums, 0.0);
      own.summed = 0;
    }
    std::vector<float> values(static_cast<size_t>((end - own.summed) * d)), mean(static_cast<size_t>(d));
    const std::vector<float> key(mean.size());
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      entries.read_some(head, own.summed, end - own.summed, nullptr, values.data(), d);
      double* sums = own.sums.data() + head * d;
      for (size_t i = 0; i < values.size(); ++i) sums[i % static_cast<size_t>(d)] += values[i];
      for (int64_t c = 0; c < d; ++c) mean[c] = static_cast<float>(sums[c] / static_cast<double>(end));
      if (own.mean.entries(head) == 0) {
        own.mean.append_to_head(head, std::span(&kNoPosition, 1), key.data(), mean.data(), d);
      } else {
        own.mean.overwrite(head, 0, nullptr, mean.data());
      }
    }
    own.summed = end;
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    const auto& own = static_cast<const MeanIndex&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t n = entries.entries(0), group = shape.group();
    Selection selection;
    std::vector<std::vector<float>> mean_logits;
    std::vector<float> scores(static_cast<size_t>(group * n)), exact(scores.size());
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      part_scores(entries, queries, head, scores);
      const std::vector<int32_t>& list =
          selection.lists.emplace_back(best_candidates(sum_rows<float>(scores, group), among, "sparq"));
      inner_products(entries, queries, head, exact);
      for (int64_t row = 0; row < group; ++row) {
        const auto of_row = [&](const std::vector<float>& all) { return std::span(all).subspan(row * n, n); };
        mean_logits.push_back({mean_logit(of_row(scores), of_row(exact), list, among, attention_scale(shape))});
      }
    }
    if (!mean_) return selection;
    const std::vector<std::vector<int32_t>> one(static_cast<size_t>(shape.q_heads), {0});
    selection.stand_ins = std::make_unique<IndexedSegment>(own.mean, one, own.ledger, mean_logits);
    return selection;
  }

 private:
  /// s of all entries, [group, n].
  void part_scores(const EntrySegment& entries, const LayerQueries& queries, int64_t head,
                   std::vector<float>& scores) const {
    const LayerShape& shape = entries.shape();
    const int64_t d = shape.head_dim, group = shape.group(), rank = std::min(rank_, d);
    const float* q = queries.q + head * group * d;
    std::vector<double> sizes(static_cast<size_t>(d));
    for (int64_t i = 0; i < group * d; ++i) sizes[i % d] += std::fabs(q[i]);
    std::vector<int32_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return sizes[a] > sizes[b]; });
    std::vector<float> part(static_cast<size_t>(shape.q_heads * d));  // zero but in the chosen channels
    for (int64_t row = 0; row < group; ++row) {
      double all = 0, chosen = 0;
      for (int64_t c = 0; c < d; ++c) all += std::fabs(q[row * d + c]);
      for (int64_t i = 0; i < rank; ++i) chosen += std::fabs(q[row * d + order[i]]);
      const double scale = all == 0 ? 1 : std::sqrt(static_cast<double>(d) * chosen / all);
      for (int64_t i = 0; i < rank; ++i) {
        part[(head * group + row) * d + order[i]] = static_cast<float>(q[row * d + order[i]] / scale);
      }
    }
    inner_products(entries, {.q = part.data(), .q_len = 1, .q_stride = shape.q_heads * d}, head, scores);
  }

  /// The logit of the mean value: log of sum over the attended e^(exact logit) * (1 - a) / a.
  static float mean_logit(std::span<const float> scores, std::span<const float> exact, const std::vector<int32_t>& list,
                          const Candidates& among, float scale) {
    const double top = *std::ranges::max_element(scores), largest = *std::ranges::max_element(exact);
    double all = 0, attended = 0, sum = 0;
    for (const float score : scores) all += std::exp(score - top);
    const auto attend = [&](int64_t entry) {
      attended += std::exp(scores[entry] - top);
      sum += std::exp((exact[entry] - largest) * scale);
    };
    for (int64_t entry = 0; entry < among.first; ++entry) attend(entry);
    for (const int32_t entry : list) attend(entry);
    for (int64_t entry = among.last; entry < std::ssize(scores); ++entry) attend(entry);
    const double rest = std::max(1 - attended / all, kLeast);
    return static_cast<float>(largest * scale + std::log(std::max(sum, kLeast)) +
                              std::log(rest / std::max(attended / all, kLeast)));
  }

  static constexpr double kLeast = 1e-30;  // keeps logits finite

  int64_t rank_ = 32;
  double local_share_ = 0.25;
  bool mean_ = true;
};

KVARENA_RETRIEVER(SparQ, {.name = "sparq",
                          .title = "SparQ",
                          .summary = "Scores by a few channels; the mean value stands for what is not attended.",
                          .paper = "arXiv:2312.04985, section 3"});

}  // namespace
}  // namespace kvarena
