#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/indexed_segment.h"
#include "harness/method/entry_scores.h"

namespace kvarena {
namespace {

/// Clusters of a layer's keys.
struct WaveIndex final : public LayerIndex {
  struct Head {
    explicit Head(const LedgerPtr& ledger)
        : ends(LedgerAllocator<int32_t>(ledger)), members(LedgerAllocator<int32_t>(ledger)) {}
    LedgerVector<int32_t> ends;     // [clusters], where a cluster's members end
    LedgerVector<int32_t> members;  // [clustered entries], cluster by cluster, ascending in each

    [[nodiscard]] int32_t begin(int32_t cluster) const { return cluster == 0 ? 0 : ends[cluster - 1]; }
    [[nodiscard]] int32_t size(int32_t cluster) const { return ends[cluster] - begin(cluster); }
  };
  WaveIndex(const LayerShape& shape, const LedgerPtr& ledger) : means(shape, ledger), ledger(ledger) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) heads.emplace_back(ledger);
  }

  EntrySegment means;       // an entry a cluster: its centroid and the mean of its values
  std::vector<Head> heads;  // [kv_heads]
  int64_t clustered = 0;    // entries before it are sinks or in clusters
  LedgerPtr ledger;

  [[nodiscard]] int64_t bytes() const override {
    int64_t total = means.bytes();
    for (const Head& head : heads)
      total += static_cast<int64_t>((head.ends.capacity() + head.members.capacity()) * sizeof(int32_t));
    return total;
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& to) const override {
    auto copy = std::make_unique<WaveIndex>(means.shape(), to);
    copy->means = std::move(static_cast<EntrySegment&>(*means.clone(to)));
    for (size_t head = 0; head < heads.size(); ++head) {
      copy->heads[head].ends.assign(heads[head].ends.begin(), heads[head].ends.end());
      copy->heads[head].members.assign(heads[head].members.begin(), heads[head].members.end());
    }
    copy->clustered = clustered;
    return copy;
  }
};

/// Centroids of rows and which of them owns each.
struct Clustering {
  at::Tensor centroids;  // [count, dim]
  at::Tensor owner;      // [n]
};

/// One step of k-means by inner product: each row joins the centroid of its largest product, of equals the first; a
/// centroid becomes the mean of its rows, of length 1 where asked, and stays where it has none.
Clustering moved(const at::Tensor& rows, const at::Tensor& centroids, bool unit) {
  const int64_t count = centroids.size(0);
  const at::Tensor owner = rows.matmul(centroids.t()).argmax(1);
  at::Tensor means = at::zeros_like(centroids, at::kDouble).index_add(0, owner, rows.to(at::kDouble));
  const at::Tensor held = at::bincount(owner, {}, count).unsqueeze(1);
  means = means / held.clamp_min(1);
  if (unit) means = means / means.norm(2, 1, /*keepdim=*/true).clamp_min(1e-12);
  return {at::where(held.gt(0), means.to(at::kFloat), centroids), owner};
}

/// Segmented k-means of rows [n, dim], from rows at equal distances: `steps` - 1 steps with centroids of length 1,
/// within `segments` equal parts of the rows, and a last one over all with means as they are.
Clustering segmented_means(const at::Tensor& rows, int64_t count, int64_t segments, int64_t steps) {
  const int64_t n = rows.size(0), length = n / segments, own = count / segments;
  const double distance = static_cast<double>(n) / static_cast<double>(count);
  const at::Tensor places = (at::arange(count, at::kFloat) * distance + distance / 2).to(at::kLong).clamp_max(n - 1);
  at::Tensor centroids = rows.index_select(0, places);
  for (int64_t step = 1; step < steps; ++step) {
    std::vector<at::Tensor> parts;
    for (int64_t i = 0; i < segments; ++i) {
      const at::Tensor part = rows.narrow(0, i * length, length);
      parts.push_back(moved(part, centroids.narrow(0, i * own, own), /*unit=*/true).centroids);
    }
    centroids = at::cat(parts);
  }
  return moved(rows, centroids, /*unit=*/false);
}

/// The estimation zone.  Keys behind the sinks and before the newest `window` are clustered, an average of
/// `cluster_size` to a cluster, by segmented k-means of keys less their mean. A step ranks a kv head's clusters by
///   sum over its query heads of softmax(q . centroid / sqrt(d))
/// and takes the best of them whole, as many as the budget less sinks and window has room for at that average: the
/// retrieval zone. Of the next ones, `estimated` of all clusters, every cluster of size s with centroid C and mean
/// value V is one entry (C, V) of weight s e^(q.C / sqrt(d)): the estimation zone. The others are left out. Entries
/// generated behind the window are attended until there are `update` of them, which become clusters of their own. Chen,
/// Zhang, Lu et al. 2025, arXiv:2505.02922, section 4; microsoft/RetrievalAttention (6b1228c), cache_hub/kmeans.py and
/// retroinfer_cache_gpu.py, whose retrieval zone has 1.8 % of the clusters, and which attends to prompts below 16k
/// tokens in full.
class RetroInfer final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("estimated", estimated_).min(0).max(1).doc("share of the clusters in the estimation zone");
    p("cluster_size", cluster_size_).min(1).doc("entries a cluster, on average");
    p("segment", segment_).min(1).doc("entries of a part of the prompt that is clustered by itself at first");
    p("iterations", iterations_).min(1).doc("of k-means");
    p("sinks", sinks_).min(0).doc("first entries, always attended");
    p("window", window_).min(1).doc("newest entries, always attended");
    p("update", update_).min(1).doc("generated entries that are clustered at a time");
  }
  bool weighs() const override { return true; }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_, .recent = window_}; }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    return std::make_unique<WaveIndex>(shape, ledger);
  }
  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& own = static_cast<WaveIndex&>(index);
    const int64_t last = end - window_;
    if (own.clustered == 0 && last > sinks_) {
      const int64_t segments = std::max<int64_t>(1, std::lround(static_cast<double>(end) / segment_));
      cluster(own, entries, sinks_, last, clusters_of(end, std::lcm(kMultiple, segments)), segments);
    }
    while (own.clustered > 0 && last - own.clustered >= update_) {
      cluster(own, entries, own.clustered, own.clustered + update_, clusters_of(update_, kMultiple), 1);
    }
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    const auto& own = static_cast<const WaveIndex&>(index);
    const LayerShape& shape = entries.shape();
    Selection selection;
    if (own.clustered == 0) return selection;
    std::vector<std::vector<int32_t>> estimated;
    std::vector<std::vector<float>> sizes;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const WaveIndex::Head& clusters = own.heads[head];
      const std::vector<int32_t> order = ranked(own, queries, head);
      const int64_t all = std::ssize(clusters.ends), full = std::ssize(order);
      const int64_t retrieved = std::clamp<int64_t>(
          std::lround(static_cast<double>(among.count) / static_cast<double>(cluster_size_)), 1, full);
      const int64_t zone = std::min<int64_t>(std::lround(estimated_ * static_cast<double>(all)), full - retrieved);
      std::vector<int32_t>& list = selection.lists.emplace_back();
      for (int64_t i = 0; i < retrieved; ++i) {
        const auto* members = clusters.members.data() + clusters.begin(order[i]);
        list.insert(list.end(), members, members + clusters.size(order[i]));
      }
      for (int64_t entry = own.clustered; entry < among.last; ++entry) list.push_back(static_cast<int32_t>(entry));
      std::ranges::sort(list);
      std::vector<int32_t>& stand_ins =
          estimated.emplace_back(order.begin() + retrieved, order.begin() + retrieved + zone);
      std::ranges::sort(stand_ins);
      std::vector<float>& weights = sizes.emplace_back();
      for (const int32_t cluster : stand_ins)
        weights.push_back(static_cast<float>(std::log(static_cast<double>(clusters.size(cluster)))));
    }
    selection.stand_ins = std::make_unique<IndexedSegment>(own.means, estimated, own.ledger, sizes);
    return selection;
  }

 private:
  static constexpr int64_t kMultiple = 8;  // of clusters, as the authors' kernels want it

  /// Clusters of `count` entries: the nearest multiple of `factor`, at least one, to one for every cluster_size.
  [[nodiscard]] int64_t clusters_of(int64_t count, int64_t factor) const {
    const int64_t wanted =
        std::max<int64_t>(std::lround(static_cast<double>(count) / static_cast<double>(cluster_size_)), factor);
    const int64_t lower = wanted / factor * factor;
    return wanted - lower <= lower + factor - wanted ? lower : lower + factor;
  }

  /// Clusters that hold any entry, the best first.
  [[nodiscard]] static std::vector<int32_t> ranked(const WaveIndex& index, const LayerQueries& queries, int64_t head) {
    const LayerShape& shape = index.means.shape();
    const int64_t all = index.means.entries(head);
    std::vector<float> scores(static_cast<size_t>(shape.group() * all));
    inner_products(index.means, queries, head, scores);
    require_numbers(scores, "retroinfer");
    softmax_rows(scores, shape.group(), attention_scale(shape));
    const std::vector<double> sums = sum_rows<double>(scores, shape.group());
    std::vector<int32_t> order;
    for (int32_t cluster = 0; cluster < all; ++cluster) {
      if (index.heads[head].size(cluster) > 0) order.push_back(cluster);
    }
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return sums[a] > sums[b]; });
    return order;
  }

  /// Adds clusters of entries [first, end).
  void cluster(WaveIndex& index, const EntrySegment& entries, int64_t first, int64_t end, int64_t count,
               int64_t segments) const {
    const LayerShape& shape = entries.shape();
    const int64_t n = end - first, d = shape.head_dim;
    if (n < count) return;
    index.clustered = end;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const at::Tensor keys = at::empty({n, d}), values = at::empty({n, d});
      entries.read_some(head, first, n, keys.data_ptr<float>(), values.data_ptr<float>(), d);
      const at::Tensor mean = keys.mean(0, /*keepdim=*/true);
      const Clustering found = segmented_means(keys - mean, count, segments, iterations_);
      add(index, head, found.owner, first, count);
      const at::Tensor held = at::bincount(found.owner, {}, count).unsqueeze(1).clamp_min(1);
      const at::Tensor sums = at::zeros({count, d}, at::kDouble).index_add(0, found.owner, values.to(at::kDouble));
      const at::Tensor centroids = (found.centroids + mean).contiguous();
      const at::Tensor means = (sums / held).to(at::kFloat).contiguous();
      index.means.append_to_head(head, std::vector<int32_t>(static_cast<size_t>(count), kNoPosition),
                                 centroids.const_data_ptr<float>(), means.const_data_ptr<float>(), d);
    }
  }

  static void add(WaveIndex& index, int64_t head, const at::Tensor& owner, int64_t first, int64_t count) {
    WaveIndex::Head& own = index.heads[head];
    std::vector<std::vector<int32_t>> members(static_cast<size_t>(count));
    const at::Tensor owners = owner.contiguous();
    for (int64_t i = 0; i < owners.size(0); ++i) {
      members[owners.const_data_ptr<int64_t>()[i]].push_back(static_cast<int32_t>(first + i));
    }
    for (const std::vector<int32_t>& cluster : members) {
      own.members.insert(own.members.end(), cluster.begin(), cluster.end());
      own.ends.push_back(static_cast<int32_t>(own.members.size()));
    }
  }

  double estimated_ = 0.232;
  int64_t cluster_size_ = 16;
  int64_t segment_ = 8192;
  int64_t iterations_ = 10;
  int64_t sinks_ = 4;
  int64_t window_ = 64;
  int64_t update_ = 1024;
};

KVARENA_RETRIEVER(RetroInfer,
                  {.name = "retroinfer",
                   .title = "RetroInfer",
                   .summary = "Attends to the best clusters; centroids with weights stand for the next ones.",
                   .paper = "arXiv:2505.02922, section 4"});

}  // namespace
}  // namespace kvarena
