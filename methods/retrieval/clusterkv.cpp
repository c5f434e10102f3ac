#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/core/random.h"
#include "harness/method/entry_scores.h"
#include "harness/method/row_index.h"

namespace kvarena {
namespace {

/// Clusters of one head's keys.
struct Clusters {
  explicit Clusters(const LedgerPtr& ledger, int64_t head_dim, DType dtype)
      : centroids(head_dim, dtype, ledger),
        ends(LedgerAllocator<int32_t>(ledger)),
        members(LedgerAllocator<int32_t>(ledger)) {}

  RowList centroids;              // [clusters, head_dim]
  LedgerVector<int32_t> ends;     // [clusters], where a cluster's members end
  LedgerVector<int32_t> members;  // [clustered entries], cluster by cluster, ascending in each
};

struct ClusterIndex final : public LayerIndex {
  std::vector<Clusters> heads;  // [kv_heads]
  int64_t layer = 0;
  int64_t clustered = 0;  // entries before it are sinks or in clusters

  [[nodiscard]] int64_t bytes() const override {
    int64_t total = 0;
    for (const Clusters& head : heads) {
      total += head.centroids.bytes();
      total += static_cast<int64_t>((head.ends.capacity() + head.members.capacity()) * sizeof(int32_t));
    }
    return total;
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<ClusterIndex>();
    copy->layer = layer;
    copy->clustered = clustered;
    for (const Clusters& head : heads) {
      Clusters& own = copy->heads.emplace_back(ledger, head.centroids.channels(), DType::f32);
      own.centroids = head.centroids.clone(ledger);
      own.ends.assign(head.ends.begin(), head.ends.end());
      own.members.assign(head.members.begin(), head.members.end());
    }
    return copy;
  }
};

/// k-means of rows [count, dim] by cosine: an entry belongs to the centroid of the largest cosine, of equals the lower
/// one; a centroid is the mean of its members as they are, and stays where it was when it has none.
class KMeans {
 public:
  KMeans(std::vector<float> rows, int64_t dim, int64_t clusters, const RandomStream& draws)
      : rows_(std::move(rows)),
        dim_(dim),
        count_(static_cast<int64_t>(rows_.size()) / dim),
        clusters_(clusters),
        units_(dim, DType::f32, std::make_shared<MemoryLedger>()),
        unit_rows_(normalised(rows_)),
        owner_(static_cast<size_t>(count_)) {
    units_.append(unit_rows_);
    seed(draws);
  }

  /// At most so many times: assign, move; fewer when nothing changes. Then a last assignment.
  void run(int64_t iterations) {
    std::vector<int32_t> before;
    for (int64_t i = 0; i < iterations; ++i) {
      assign();
      if (owner_ == before) return;
      before = owner_;
      move();
    }
    assign();
  }

  [[nodiscard]] const std::vector<float>& centroids() const { return centroids_; }  // [clusters, dim]
  [[nodiscard]] const std::vector<int32_t>& owner() const { return owner_; }        // [count]

 private:
  [[nodiscard]] std::vector<float> normalised(const std::vector<float>& rows) const {
    std::vector<float> units = rows;
    for (size_t first = 0; first < units.size(); first += static_cast<size_t>(dim_)) {
      double square = 0;
      for (int64_t c = 0; c < dim_; ++c) square += static_cast<double>(units[first + c]) * units[first + c];
      const double scale = 1 / std::max(std::sqrt(square), 1e-12);
      for (int64_t c = 0; c < dim_; ++c) units[first + c] = static_cast<float>(units[first + c] * scale);
    }
    return units;
  }

  /// k-means++: each centroid is an entry drawn in proportion to its distance, 1 - cosine, from the ones before.
  void seed(const RandomStream& draws) {
    std::vector<double> distance(static_cast<size_t>(count_), 1.0);
    std::vector<float> cosines(distance.size());
    for (int64_t cluster = 0; cluster < clusters_; ++cluster) {
      const double sum = std::accumulate(distance.begin(), distance.end(), 0.0);
      double rest = draws.uniform(static_cast<uint64_t>(cluster)) * sum;
      int64_t chosen = 0;
      while (chosen + 1 < count_ && (rest -= distance[chosen]) >= 0) ++chosen;
      const float* row = rows_.data() + chosen * dim_;
      centroids_.insert(centroids_.end(), row, row + dim_);
      units_.score(unit_rows_.data() + chosen * dim_, 1, dim_, cosines);
      for (int64_t i = 0; i < count_; ++i) {
        distance[i] = std::min(distance[i], std::max(0.0, 1 - static_cast<double>(cosines[i])));
      }
      distance[chosen] = 0;
    }
  }

  void assign() {
    RowList directions(dim_, DType::f32, std::make_shared<MemoryLedger>());
    directions.append(normalised(centroids_));
    std::vector<float> cosines(static_cast<size_t>(kRows * clusters_));
    for (int64_t first = 0; first < count_; first += kRows) {
      const int64_t rows = std::min(kRows, count_ - first);
      directions.score(unit_rows_.data() + first * dim_, rows, dim_, cosines);
      for (int64_t i = 0; i < rows; ++i) {
        const auto row = std::span(cosines).subspan(static_cast<size_t>(i * clusters_), static_cast<size_t>(clusters_));
        owner_[first + i] = static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
      }
    }
  }

  void move() {
    std::vector<double> sums(centroids_.size());
    std::vector<int64_t> members(static_cast<size_t>(clusters_));
    for (int64_t i = 0; i < count_; ++i) {
      ++members[owner_[i]];
      for (int64_t c = 0; c < dim_; ++c) sums[owner_[i] * dim_ + c] += rows_[i * dim_ + c];
    }
    for (size_t at = 0; at < sums.size(); ++at) {
      const int64_t held = members[at / static_cast<size_t>(dim_)];
      if (held > 0) centroids_[at] = static_cast<float>(sums[at] / static_cast<double>(held));
    }
  }

  static constexpr int64_t kRows = 256;  // entries scored at once

  std::vector<float> rows_;  // [count, dim]
  int64_t dim_;
  int64_t count_;
  int64_t clusters_;
  RowList units_;                 // the same, of length 1
  std::vector<float> unit_rows_;  // again, row by row
  std::vector<float> centroids_;
  std::vector<int32_t> owner_;
};

/// Clusters of keys instead of pages.  Keys behind the sinks are clustered by cosine (k-means); a step takes whole
/// clusters in the order of
///   q . centroid
/// until the budget less the sinks is filled, cutting the last one to fit (its later members go). Each query head takes
/// its own; gqa = "mean" takes one set a kv head by the mean query of the group. Sinks are attended always. Generated
/// entries are too, as in the authors' accuracy code; with generated = "candidates" every `window` of them is clustered
/// into `window_clusters` more, as in their fast code, and those of an unfinished window are attended beside the
/// budget. The authors' k-means is RAFT's, whose draws are not reproduced; seeding is k-means++ here too. Liu et al.
/// 2024, arXiv:2412.03213, section 3; sjtu-zhao-lab/ClusterKV, accuracy/cluster_attention.py.
class ClusterKv final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("clusters", clusters_).min(1).doc("clusters of the prompt's keys, at most one an entry");
    p("iterations", iterations_).min(1).doc("of k-means");
    p("sinks", sinks_).min(0).doc("first entries, which are in no cluster and always attended");
    p("window", window_).min(1).doc("generated entries that are clustered at a time");
    p("window_clusters", window_clusters_).min(1).doc("clusters of each such window");
    p("gqa", gqa_).one_of({"none", "mean"}).doc("one selection a query head, or one a kv head by its mean query");
    p("seed", seed_).min(0).doc("of the first centroids");
  }
  int64_t default_dense_layers() const override { return 2; }
  const char* default_generated() const override { return "attended"; }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_}; }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    auto index = std::make_unique<ClusterIndex>();
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      index->heads.emplace_back(ledger, shape.head_dim, shape.dtype);
    }
    return index;
  }
  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& /*seen*/) const override {
    static_cast<ClusterIndex&>(index).layer = layer.layer;
  }

  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& own = static_cast<ClusterIndex&>(index);
    if (own.clustered == 0) {
      const int64_t first = std::min(sinks_, end);
      cluster(own, entries, first, end, clusters_);
    }
    while (end - own.clustered >= window_) {
      cluster(own, entries, own.clustered, own.clustered + window_, window_clusters_);
    }
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    const auto& own = static_cast<const ClusterIndex&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t rows = gqa_ == "mean" ? 1 : shape.group();
    Selection selection;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const float* q = queries.q + head * shape.group() * shape.head_dim;
      const std::vector<float> mean = gqa_ == "mean" ? mean_of(q, shape) : std::vector<float>{};
      const Clusters& clusters = own.heads[head];
      const int64_t count = clusters.centroids.count();
      std::vector<float> scores(static_cast<size_t>(rows * count));
      clusters.centroids.score(mean.empty() ? q : mean.data(), rows, shape.head_dim, scores);
      for (int64_t row = 0; row < rows; ++row) {
        const auto own_scores = std::span(scores).subspan(static_cast<size_t>(row * count), static_cast<size_t>(count));
        std::vector<int32_t>& list =
            selection.lists.emplace_back(best_members(clusters, own_scores, among.budget - among.first));
        for (int64_t entry = own.clustered; entry < among.last; ++entry) list.push_back(static_cast<int32_t>(entry));
      }
    }
    return selection;
  }

 private:
  static std::vector<float> mean_of(const float* q, const LayerShape& shape) {
    std::vector<float> mean(static_cast<size_t>(shape.head_dim));
    for (int64_t c = 0; c < shape.head_dim; ++c) {
      double sum = 0;
      for (int64_t row = 0; row < shape.group(); ++row) sum += q[row * shape.head_dim + c];
      mean[c] = static_cast<float>(sum / static_cast<double>(shape.group()));
    }
    return mean;
  }

  /// Members of the best clusters, `wanted` of them, ascending.
  static std::vector<int32_t> best_members(const Clusters& clusters, std::span<const float> scores, int64_t wanted) {
    require_numbers(scores, "clusterkv");
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    std::vector<int32_t> list;
    for (const int32_t cluster : order) {
      const int64_t begin = cluster == 0 ? 0 : clusters.ends[cluster - 1];
      const int64_t room = wanted - static_cast<int64_t>(list.size());
      const int64_t end = std::min<int64_t>(clusters.ends[cluster], begin + std::max<int64_t>(0, room));
      list.insert(list.end(), clusters.members.begin() + begin, clusters.members.begin() + end);
    }
    std::ranges::sort(list);
    return list;
  }

  void cluster(ClusterIndex& index, const EntrySegment& entries, int64_t first, int64_t end, int64_t wanted) const {
    const LayerShape& shape = entries.shape();
    const int64_t count = end - first;
    index.clustered = end;
    if (count == 0) return;
    std::vector<float> keys(static_cast<size_t>(count * shape.head_dim));
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      entries.read_some(head, first, count, keys.data(), nullptr, shape.head_dim);
      const RandomStream draws(static_cast<uint64_t>(seed_),
                               fmt::format("clusterkv layer {} head {} entry {}", index.layer, head, first));
      KMeans means(keys, shape.head_dim, std::min(wanted, count), draws);
      means.run(iterations_);
      add(index.heads[head], means, first);
    }
  }

  static void add(Clusters& clusters, const KMeans& means, int64_t first) {
    const auto count = static_cast<int64_t>(means.centroids().size()) / clusters.centroids.channels();
    clusters.centroids.append(means.centroids());
    for (int32_t cluster = 0; cluster < count; ++cluster) {
      for (size_t i = 0; i < means.owner().size(); ++i) {
        if (means.owner()[i] == cluster)
          clusters.members.push_back(static_cast<int32_t>(first + static_cast<int64_t>(i)));
      }
      clusters.ends.push_back(static_cast<int32_t>(clusters.members.size()));
    }
  }

  int64_t clusters_ = 400;
  int64_t iterations_ = 20;
  int64_t sinks_ = 16;
  int64_t window_ = 320;
  int64_t window_clusters_ = 8;
  std::string gqa_ = "none";
  int64_t seed_ = 0;
};

KVARENA_RETRIEVER(ClusterKv, {.name = "clusterkv",
                              .title = "ClusterKV",
                              .summary = "Attends to the clusters of keys whose centroids the query points at.",
                              .paper = "arXiv:2412.03213, section 3"});

}  // namespace
}  // namespace kvarena
