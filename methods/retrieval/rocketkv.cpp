#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/indexed_segment.h"
#include "harness/core/error.h"
#include "harness/method/entry_scores.h"
#include "harness/method/head_lists.h"
#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Sizes of both stages under a budget.
struct Stages {
  int64_t kept = 0;      // entries of a head after the first
  int64_t chunk = 1;     // entries that the second judges together
  int64_t channels = 1;  // of a query, by which it does
  int64_t count = 1;     // entries that a step attends to
};

/// Smallest and largest key of each chunk, channel by channel, in the layer's type. Chunks of one entry are the keys.
struct ChunkIndex final : public LayerIndex {
  ChunkIndex(const LayerShape& shape, const Stages& two, HeadLists<std::byte> bounds)
      : stages(two), dtype(shape.dtype), head_dim(shape.head_dim), heads(std::move(bounds)) {}

  Stages stages;
  DType dtype;
  int64_t head_dim;
  HeadLists<std::byte> heads;  // [kv_heads] of [chunks, 2, head_dim]

  [[nodiscard]] int64_t bytes() const override { return heads.bytes(); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<ChunkIndex>(LayerShape{.head_dim = head_dim, .dtype = dtype}, stages,
                                        HeadLists(heads, ledger));
  }
  [[nodiscard]] float bound(int64_t kv_head, int64_t chunk, bool high, int64_t channel) const {
    return kernels::load_element(heads[kv_head].data(), dtype, (2 * chunk + (high ? 1 : 0)) * head_dim + channel);
  }
};

/// Brings the bounds up to date; the chunk where they end is read again, for drafts may have been taken back.
void extend(ChunkIndex& index, const EntrySegment& entries) {
  const int64_t n = entries.entries(0), chunk = index.stages.chunk, d = index.head_dim;
  const int64_t first = index.entries / chunk, chunks = (n + chunk - 1) / chunk;
  index.entries = n;
  if (chunk == 1 || first * chunk >= n) return;
  std::vector<float> keys(static_cast<size_t>((n - first * chunk) * d));
  for (int64_t head = 0; head < index.heads.heads(); ++head) {
    entries.read_some(head, first * chunk, n - first * chunk, keys.data(), nullptr, d);
    LedgerVector<std::byte>& bounds = index.heads[head];
    bounds.resize(static_cast<size_t>(chunks * 2 * d * kernels::size_of(index.dtype)));
    for (int64_t at = first; at < chunks; ++at) {
      const int64_t begin = (at - first) * chunk, end = std::min(begin + chunk, n - first * chunk);
      for (int64_t c = 0; c < d; ++c) {
        float low = keys[begin * d + c], high = low;
        for (int64_t i = begin + 1; i < end; ++i) {
          low = std::min(low, keys[i * d + c]);
          high = std::max(high, keys[i * d + c]);
        }
        kernels::store_element(bounds.data(), index.dtype, 2 * at * d + c, low);
        kernels::store_element(bounds.data(), index.dtype, (2 * at + 1) * d + c, high);
      }
    }
  }
}

/// Queries of a kv head, q [group, head_dim], and the channels by which they judge: the largest by the sum of
/// magnitudes over the group, with the sign of the group's sum.
struct SketchedQueries {
  struct Channel {
    int64_t number = 0;
    bool positive = false;
  };
  SketchedQueries(const float* queries, int64_t rows, int64_t head_dim, int64_t channels)
      : q(queries), group(rows), d(head_dim) {
    std::vector<double> size(static_cast<size_t>(d)), sum(static_cast<size_t>(d));
    for (int64_t i = 0; i < group * d; ++i) {
      size[i % d] += std::fabs(static_cast<double>(q[i]));
      sum[i % d] += q[i];
    }
    std::vector<int64_t> order(static_cast<size_t>(d));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return size[a] > size[b]; });
    for (int64_t i = 0; i < channels; ++i) chosen.push_back({.number = order[i], .positive = sum[order[i]] > 0});
  }
  /// The softmax's divisor: sqrt(d) for the share of a query's magnitude that is looked at.
  [[nodiscard]] double divisor(int64_t row) const {
    double all = 0, looked_at = 0;
    for (int64_t c = 0; c < d; ++c) all += std::fabs(static_cast<double>(q[row * d + c]));
    for (const Channel& channel : chosen) looked_at += std::fabs(static_cast<double>(q[row * d + channel.number]));
    return all > 0 ? std::sqrt(static_cast<double>(d) * looked_at / all) : 1;
  }

  const float* q;
  int64_t group;
  int64_t d;
  std::vector<Channel> chosen;
};

/// Two stages of compression.  Of a prompt of n entries under a budget t (c = n / t, e = min(0.2 + 0.06 log2 c, 0.8)):
///   1  a kv head keeps the n / c^e best for good, by votes of the last 32 queries, summed over them and the group and
///      max-pooled over 63 entries (SnapKV's rule under settings of its own; any scorer of keys, values and queries)
///   2  with c' = (n / c^e) / t, entries fall into chunks of s = ceil(sqrt(c')), 1 where that exceeds c'. In the
///      d s / c' channels where |q| summed over the group is largest, a step reads each chunk's largest keys, or
///      smallest where the group's q sum is not positive:  w[h,i] = sum over c of q[h,c] bound[chunk of i, c];  the
///      t / 2 entries with the largest sum over the group of softmax_i(w / sqrt(d |q chosen|_1 / |q|_1)) are attended.
/// Half of a budget is thus entries attended to, the other half what judging them reads. Chunks count from the first
/// entry that is left, generated ones join them; the newest is attended whatever its score. Tokens that follow the
/// prompt in one pass attend to all that is left. Behnam, Fu, Zhao, Tsai, Yu, Tumanov 2025, arXiv:2502.14051, section
/// 4; numbers and roundings as in NVlabs/RocketKV (pipeline/inf_stream_llm), whose first stage also takes the room of
/// the tokens to come from its budget. The paper's variant for several turns, which drops nothing, is not here.
class RocketKv final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    budget_.parameters(p);
    p("split", split_).min(0).max(1).doc("e, the first stage's share of the compression; absent: by the ratio");
    p("scorer", scorer_).doc("the dropping method by whose scores the first stage keeps entries");
    p("dense_layers", dense_layers_).min(0).doc("first layers, which keep and attend to everything");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    budget_.check(place, problems);
    if (scorer_->score_width() == 0) return;
    problems.push_back(describe({.place = place + ".scorer.name",
                                 .found = "\"" + scorer_.name() + "\", which remembers numbers while decoding",
                                 .expected = "a scorer of the prompt"}));
  }
  Needs needs() const override { return scorer_->needs(); }
  HookAccess reach() const override { return HookAccess::views; }
  bool compresses_by_layer() const override { return true; }

  void compress(LayerContext& layer, const LayerObservations& seen) const override {
    const LayerShape& shape = layer.cache.shape();
    const int64_t n = layer.cache.tail().entries(0), budget = budget_.capacity(n, shape, layer.budgeted());
    if (layer.layer < dense_layers_ || shape.window > 0 || budget >= n) return;
    const Stages two = stages(n, budget, shape.head_dim);
    evict(layer, seen, two.kept);
    auto index = std::make_unique<ChunkIndex>(shape, two, HeadLists<std::byte>(shape.kv_heads, layer.cache.ledger()));
    extend(*index, layer.cache.tail());
    layer.cache.index = std::move(index);
  }

  void select(LayerContext& layer, const LayerQueries& queries) const override {
    auto* const index = dynamic_cast<ChunkIndex*>(layer.cache.index.get());
    if (index == nullptr) return;
    const EntrySegment& entries = layer.cache.tail();
    const LayerShape& shape = entries.shape();
    extend(*index, entries);
    const int64_t n = index->entries;
    if (queries.q_len > 1 || n <= index->stages.count) return;
    const Candidates before{.last = n - 1, .count = index->stages.count - 1};
    std::vector<std::vector<int32_t>> selection;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const SketchedQueries group(queries.q + head * shape.group() * shape.head_dim, shape.group(), shape.head_dim,
                                  index->stages.channels);
      std::vector<int32_t>& list = selection.emplace_back();
      if (before.count > 0) list = best_candidates(judged(*index, entries, head, group), before, "rocketkv");
      list.push_back(static_cast<int32_t>(n - 1));
      layer.activity.entries_skipped += n - std::ssize(list);
    }
    layer.cache.view = std::make_unique<IndexedSegment>(entries, selection, layer.cache.ledger());
  }

 private:
  [[nodiscard]] Stages stages(int64_t n, int64_t budget, int64_t head_dim) const {
    const double ratio = static_cast<double>(n) / static_cast<double>(budget);
    const double share = split_.value_or(std::min(0.2 + 0.06 * std::log2(ratio), 0.8));
    Stages two{.kept = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(n) / std::pow(ratio, share))),
               .count = std::max<int64_t>(1, budget / 2)};
    const double rest = std::max(1.0, static_cast<double>(two.kept) / static_cast<double>(budget));
    const auto chunk = static_cast<int64_t>(std::ceil(std::sqrt(rest)));
    if (static_cast<double>(chunk) <= rest) two.chunk = chunk;
    two.channels =
        std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(head_dim * two.chunk) / rest), 1, head_dim);
    return two;
  }

  void evict(LayerContext& layer, const LayerObservations& seen, int64_t count) const {
    const LayerView view = LayerView(layer, &seen).under(static_cast<double>(count));
    const at::Tensor scores = scorer_->score(view).to(at::kFloat).contiguous();  // [kv_heads, n]
    std::vector<std::vector<int32_t>> kept;
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      const std::span<const float> row(scores.const_data_ptr<float>() + head * view.n(), static_cast<size_t>(view.n()));
      require_numbers(row, "rocketkv");
      kept.push_back(select_best(row, count, scorer_->protect(count)));
      layer.activity.entries_dropped += view.n() - std::ssize(kept.back());
    }
    layer.cache.tail().keep(kept);
  }

  /// Sum over the group of each query's softmax over all entries, as the chosen channels of their chunks have it: [n].
  static std::vector<float> judged(const ChunkIndex& index, const EntrySegment& entries, int64_t kv_head,
                                   const SketchedQueries& group) {
    const int64_t n = index.entries, chunk = index.stages.chunk, d = index.head_dim;
    std::vector<float> keys(static_cast<size_t>(chunk == 1 ? n * d : 0));
    if (chunk == 1) entries.read_some(kv_head, 0, n, keys.data(), nullptr, d);
    const int64_t chunks = (n + chunk - 1) / chunk;
    std::vector<double> sums(static_cast<size_t>(chunks));
    std::vector<std::vector<double>> rows(static_cast<size_t>(group.group), sums);
    for (int64_t at = 0; at < chunks; ++at) {
      for (const auto& [c, positive] : group.chosen) {
        const float key = chunk == 1 ? keys[at * d + c] : index.bound(kv_head, at, positive, c);
        for (int64_t r = 0; r < group.group; ++r) rows[r][at] += static_cast<double>(group.q[r * d + c]) * key;
      }
    }
    for (int64_t r = 0; r < group.group; ++r) {
      std::vector<double>& row = rows[r];
      const double divisor = group.divisor(r), largest = std::ranges::max(row) / divisor;
      double total = 0;
      for (int64_t at = 0; at < chunks; ++at) {
        row[at] = std::exp(row[at] / divisor - largest);
        total += row[at] * static_cast<double>(std::min(chunk, n - at * chunk));
      }
      for (int64_t at = 0; at < chunks; ++at) sums[at] += row[at] / total;
    }
    std::vector<float> scores(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) scores[i] = static_cast<float>(sums[i / chunk]);
    return scores;
  }

  Budget budget_;
  std::optional<double> split_;
  Nested<Scorer> scorer_{R"({"gqa":"sum","kernel":63,"name":"snapkv","order":"group_first","pool":"max","window":32})"};
  int64_t dense_layers_ = 0;
};

KVARENA_METHOD(RocketKv, Family::retrieval,
               {.name = "rocketkv",
                .title = "RocketKV",
                .summary = "Drops entries of the prompt for good, then attends to the best by chunks and channels.",
                .paper = "arXiv:2502.14051, section 4"});

}  // namespace
}  // namespace kvarena
