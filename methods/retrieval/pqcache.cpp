#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/core/random.h"
#include "harness/method/entry_scores.h"

namespace kvarena {
namespace {

/// Product quantisation of a layer's keys: each of `parts` runs of channels is one of the run's centroids.
struct CodeIndex final : public LayerIndex {
  struct Head {
    explicit Head(const LedgerPtr& ledger)
        : centroids(LedgerAllocator<float>(ledger)), codes(LedgerAllocator<uint8_t>(ledger)) {}

    LedgerVector<float> centroids;  // [parts, count, head_dim / parts]
    LedgerVector<uint8_t> codes;    // [entries, parts]
  };
  std::vector<Head> heads;  // [kv_heads]
  int64_t layer = 0;
  int64_t count = 0;  // centroids a part

  [[nodiscard]] int64_t bytes() const override {
    size_t total = 0;
    for (const Head& head : heads) total += head.centroids.capacity() * sizeof(float) + head.codes.capacity();
    return static_cast<int64_t>(total);
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<CodeIndex>();
    copy->layer = layer;
    copy->count = count;
    for (const Head& head : heads) {
      Head& own = copy->heads.emplace_back(ledger);
      own.centroids.assign(head.centroids.begin(), head.centroids.end());
      own.codes.assign(head.codes.begin(), head.codes.end());
    }
    return copy;
  }
};

/// The nearest centroid of each row, of equals the first: rows [n, dim], centroids [count, dim] -> [n].
at::Tensor nearest(const at::Tensor& rows, const at::Tensor& centroids) {
  const int64_t n = rows.size(0), count = centroids.size(0);
  const at::Tensor scores = at::addmm(centroids.square().sum(1) / -2, rows, centroids.t()).contiguous();
  const float* const numbers = scores.const_data_ptr<float>();
  at::Tensor best = at::empty({n}, at::kLong);
  auto* const to = best.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    const float* const row = numbers + i * count;
    to[i] = std::max_element(row, row + count) - row;
  }
  return best;
}

/// The mean of each centroid's rows [n, dim]; one without any stays.
at::Tensor means(const at::Tensor& rows, const at::Tensor& owner, const at::Tensor& centroids) {
  const int64_t dim = rows.size(1);
  const auto* const owners = owner.const_data_ptr<int64_t>();
  const float* const numbers = rows.const_data_ptr<float>();
  at::Tensor sums = at::zeros_like(centroids);
  auto* const to = sums.mutable_data_ptr<float>();
  for (int64_t i = 0; i < rows.size(0); ++i) {
    for (int64_t c = 0; c < dim; ++c) to[owners[i] * dim + c] += numbers[i * dim + c];
  }
  const at::Tensor held = at::bincount(owner, /*weights=*/{}, centroids.size(0)).unsqueeze(1);
  return at::where(held.gt(0), sums / held.clamp_min(1), centroids);
}

/// Lloyd's k-means of rows [n, dim], n >= count, from k-means++ draws: [count, dim]. A centroid without members stays.
at::Tensor k_means(const at::Tensor& rows, int64_t count, int64_t iterations, const RandomStream& draws) {
  const int64_t n = rows.size(0);
  std::vector<at::Tensor> seeds;
  at::Tensor distance = at::ones({n}, at::kDouble);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor passed = distance.cumsum(0);
    const double drawn = draws.uniform(static_cast<uint64_t>(i)) * passed[n - 1].item<double>();
    const int64_t chosen = std::min(n - 1, passed.le(drawn).sum().item<int64_t>());
    seeds.push_back(rows[chosen]);
    const at::Tensor from_it = (rows - rows[chosen]).square().sum(1).to(at::kDouble);
    distance = i == 0 ? from_it : at::minimum(distance, from_it);
  }
  at::Tensor centroids = at::stack(seeds);
  at::Tensor owner;
  for (int64_t i = 0; i < iterations; ++i) {
    const at::Tensor now = nearest(rows, centroids);
    if (owner.defined() && owner.equal(now)) break;
    owner = now;
    centroids = means(rows, owner, centroids);
  }
  return centroids;
}

/// Scores from product codes of keys.  The channels of a head fall into `parts` runs; behind the sinks each run of a
/// prompt's keys is one of 2^bits centroids (k-means), a later key's the nearest. A step scores the entries between the
/// sinks and the newest ones by
///   w[h,i] = sum over parts p of q_h,p . centroid(code of k_i,p),   s[j,i] = sum over the group of softmax_i(w /
///   sqrt(d))
/// and attends to the best of each kv head, exactly. Half of what the sinks leave of the budget goes to the newest
/// entries. Prompts shorter than the centroids are attended whole. The authors cluster on the host while the device
/// reads the prompt, in as many iterations as that takes. Zhang et al. 2025, arXiv:2407.12820, section 3;
/// HugoZHL/PQCache, vq_method/retrieval_based/pq_search.py (its Euclidean form).
class PqCache final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("parts", parts_).min(1).doc("runs of a head's channels, each with codes of its own");
    p("bits", bits_).min(1).max(8).doc("of a code");
    p("iterations", iterations_).min(1).doc("of k-means");
    p("sinks", sinks_).min(0).doc("first entries, always attended");
    p("recent_share", recent_share_).min(0).max(1).doc("share of the budget behind the sinks for the newest entries");
    p("seed", seed_).min(0).doc("of the first centroids");
  }
  Protection protect(int64_t budget) const override {
    const auto rest = static_cast<double>(std::max<int64_t>(0, budget - sinks_));
    return {.sinks = sinks_, .recent = static_cast<int64_t>(std::floor(recent_share_ * rest + 1e-9))};
  }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    auto index = std::make_unique<CodeIndex>();
    for (int64_t head = 0; head < shape.kv_heads; ++head) index->heads.emplace_back(ledger);
    return index;
  }
  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& /*seen*/) const override {
    static_cast<CodeIndex&>(index).layer = layer.layer;
  }

  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& own = static_cast<CodeIndex&>(index);
    const int64_t first = own.entries;
    const int64_t count = end - first;
    const LayerShape& shape = entries.shape();
    std::vector<float> keys(static_cast<size_t>(count * shape.head_dim));
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      entries.read_some(head, first, count, keys.data(), nullptr, shape.head_dim);
      const at::Tensor rows = at::from_blob(keys.data(), {count, parts(shape), shape.head_dim / parts(shape)});
      if (own.heads[head].centroids.empty()) fit(own, head, rows);
      if (!own.heads[head].centroids.empty()) encode(own, head, rows);
    }
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    const auto& own = static_cast<const CodeIndex&>(index);
    if (own.count == 0) return {};
    const LayerShape& shape = entries.shape();
    Selection selection;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const float* q = queries.q + head * shape.group() * shape.head_dim;
      std::vector<float> scores = code_scores(own, head, q, shape, among);  // [group, candidates]
      softmax_rows(scores, shape.group(), attention_scale(shape));
      std::vector<float> sums = sum_rows<float>(scores, shape.group());
      sums.insert(sums.begin(), static_cast<size_t>(among.first), 0.0F);
      selection.lists.push_back(best_candidates(sums, among, "pqcache"));
    }
    return selection;
  }

 private:
  /// As many parts as divide the head's channels, at most those asked for.
  [[nodiscard]] int64_t parts(const LayerShape& shape) const { return std::gcd(shape.head_dim, parts_); }

  /// Centroids of the prompt's keys behind the sinks; none where there are fewer keys than centroids.
  void fit(CodeIndex& index, int64_t head, const at::Tensor& rows) const {
    const int64_t count = int64_t{1} << bits_;
    const int64_t behind = rows.size(0) - sinks_;
    if (behind < count) return;
    index.count = count;
    for (int64_t part = 0; part < rows.size(1); ++part) {
      const RandomStream draws(static_cast<uint64_t>(seed_),
                               fmt::format("pqcache layer {} head {} part {}", index.layer, head, part));
      const at::Tensor own = rows.select(1, part).narrow(0, sinks_, behind).contiguous();
      const at::Tensor centroids = k_means(own, count, iterations_, draws).contiguous();
      const float* numbers = centroids.const_data_ptr<float>();
      index.heads[head].centroids.insert(index.heads[head].centroids.end(), numbers, numbers + centroids.numel());
    }
  }

  static void encode(CodeIndex& index, int64_t head, const at::Tensor& rows) {
    CodeIndex::Head& own = index.heads[head];
    const int64_t parts = rows.size(1);
    const at::Tensor centroids = at::from_blob(own.centroids.data(), {parts, index.count, rows.size(2)});
    std::vector<at::Tensor> codes;
    for (int64_t part = 0; part < parts; ++part) codes.push_back(nearest(rows.select(1, part), centroids[part]));
    const at::Tensor all = at::stack(codes, 1).to(at::kByte).contiguous();  // [rows, parts]
    const auto* bytes = all.const_data_ptr<uint8_t>();
    own.codes.resize(static_cast<size_t>(index.entries * parts));  // drafts that were taken back
    own.codes.insert(own.codes.end(), bytes, bytes + all.numel());
  }

  /// w of the candidates, [group, candidates].
  [[nodiscard]] std::vector<float> code_scores(const CodeIndex& index, int64_t head, const float* q,
                                               const LayerShape& shape, const Candidates& among) const {
    const CodeIndex::Head& own = index.heads[head];
    const int64_t parts = this->parts(shape);
    const int64_t dim = shape.head_dim / parts;
    std::vector<float> scores(static_cast<size_t>(shape.group() * among.size()));
    std::vector<float> table(static_cast<size_t>(parts * index.count));
    for (int64_t row = 0; row < shape.group(); ++row) {
      for (int64_t at = 0; at < parts * index.count; ++at) {
        const float* query = q + row * shape.head_dim + at / index.count * dim;
        double sum = 0;
        for (int64_t c = 0; c < dim; ++c) sum += static_cast<double>(query[c]) * own.centroids[at * dim + c];
        table[at] = static_cast<float>(sum);
      }
      float* to = scores.data() + row * among.size();
      for (int64_t entry = among.first; entry < among.last; ++entry) {
        const uint8_t* code = own.codes.data() + entry * parts;
        float sum = 0;
        for (int64_t part = 0; part < parts; ++part) sum += table[part * index.count + code[part]];
        to[entry - among.first] = sum;
      }
    }
    return scores;
  }

  int64_t parts_ = 2;
  int64_t bits_ = 6;
  int64_t iterations_ = 20;
  int64_t sinks_ = 32;
  double recent_share_ = 0.5;
  int64_t seed_ = 0;
};

KVARENA_RETRIEVER(PqCache, {.name = "pqcache",
                            .title = "PQCache",
                            .summary = "Attends to the entries whose product-quantised keys score best.",
                            .paper = "arXiv:2407.12820, section 3"});

}  // namespace
}  // namespace kvarena
