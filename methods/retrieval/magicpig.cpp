#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "harness/core/normal_draws.h"
#include "harness/core/random.h"
#include "harness/method/entry_scores.h"
#include "harness/method/head_lists.h"

namespace kvarena {
namespace {

/// Hash codes of a layer's keys.
struct HashIndex final : public LayerIndex {
  HashIndex(HeadLists<uint16_t> hashes, const LedgerPtr& ledger)
      : means(LedgerAllocator<float>(ledger)), codes(std::move(hashes)) {}

  int64_t layer = 0;
  int64_t first = 0, end = 0;  // entries that have codes
  LedgerVector<float> means;   // [kv_heads, head_dim] of the keys that were hashed first
  HeadLists<uint16_t> codes;   // [kv_heads] of [end - first, tables]
  at::Tensor directions;  // [head_dim, tables * bits], follow from the seed: not counted; of a dense layer undefined

  [[nodiscard]] int64_t bytes() const override {
    return codes.bytes() + static_cast<int64_t>(means.capacity() * sizeof(float));
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<HashIndex>(HeadLists(codes, ledger), ledger);
    copy->layer = layer;
    copy->first = first;
    copy->end = end;
    copy->means.assign(means.begin(), means.end());
    copy->directions = directions;
    return copy;
  }
};

/// Sampling by locality-sensitive hashing.  Keys are hashed into `tables` tables by the signs of k - m along `bits`
/// random directions each, m the mean key. A query head attends to the entries that share its code in two tables at
/// least, each with the logit
///   q.k / sqrt(d) - log(u + 1e-4),   u = 1 - (1 - p)^L - L p (1 - p)^(L-1),   p = (1 - angle(q, k - m) / pi)^K
/// for K bits and L tables, where u is the probability that the entry is sampled: an estimate of attention to all. The
/// first `sinks` entries, the prompt's last `window` and those made since are attended as they are, as is everything in
/// every `dense_every`-th layer. No budget: bits and tables decide how many are sampled. Centred keys leave a softmax
/// as it is, so that entries in it stay where they are. Chen, Sadhukhan, Ye, Zhou, Zhang, Nolte, Tian, Douze, Bottou,
/// Jia, Chen 2024, arXiv:2410.16179, section 4; Infini-AI-Lab/MagicPIG, models/attnserver.py. Codes are compared one by
/// one here; the authors keep their tables sorted, in 4 bytes an entry and table.
class MagicPig final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(1).max(16).doc("K, random directions a table");
    p("tables", tables_).min(2).doc("L, tables");
    p("sinks", sinks_).min(0).doc("first entries, always attended");
    p("window", window_).min(1).doc("last entries of the prompt, always attended");
    p("dense_every", dense_every_).min(0).doc("layers 0, n, 2n, .. attend to everything; 0: none do");
    p("seed", seed_).min(0).doc("of the directions");
  }
  bool budgeted() const override { return false; }
  bool weighs() const override { return true; }
  const char* default_generated() const override { return "attended"; }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_}; }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    return std::make_unique<HashIndex>(HeadLists<uint16_t>(shape.kv_heads, ledger), ledger);
  }
  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& /*seen*/) const override {
    auto& own = static_cast<HashIndex&>(index);
    own.layer = layer.layer;
    if (!dense(own)) own.directions = directions(layer.cache.shape().head_dim);
  }

  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& own = static_cast<HashIndex&>(index);
    if (!own.directions.defined()) return;
    const LayerShape& shape = entries.shape();
    if (own.means.empty()) own.first = own.end = sinks_;
    own.end = std::max(own.first, std::min(own.end, index.entries));  // drafts were taken back
    const int64_t count = end - window_ - own.end;
    if (count <= 0) return;
    const bool first = own.means.empty();
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const at::Tensor keys = at::empty({count, shape.head_dim});
      entries.read_some(head, own.end, count, keys.data_ptr<float>(), nullptr, shape.head_dim);
      if (first) {
        const at::Tensor mean = keys.mean(0).contiguous();
        own.means.insert(own.means.end(), mean.const_data_ptr<float>(), mean.const_data_ptr<float>() + shape.head_dim);
      }
      const at::Tensor mean = at::from_blob(own.means.data() + head * shape.head_dim, {shape.head_dim});
      own.codes[head].resize(static_cast<size_t>((own.end - own.first) * tables_));
      const std::vector<uint16_t> codes = codes_of(keys - mean, own.directions);
      own.codes[head].insert(own.codes[head].end(), codes.begin(), codes.end());
    }
    own.end += count;
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    const auto& own = static_cast<const HashIndex&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t end = std::min(own.end, among.last);
    Selection selection;
    if (own.end == own.first) return selection;
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      const float* q = queries.q + head * shape.head_dim;
      const int64_t kv_head = head / shape.group();
      std::vector<int32_t>& list = selection.lists.emplace_back(colliding(own, kv_head, q, shape.head_dim));
      std::erase_if(list, [&](int32_t entry) { return entry >= end; });
      std::vector<float>& biases = selection.biases.emplace_back(biases_of(own, entries, kv_head, q, list));
      for (int64_t entry = std::max(end, among.first); entry < among.last; ++entry) {
        list.push_back(static_cast<int32_t>(entry));
        biases.push_back(0);
      }
    }
    return selection;
  }

 private:
  [[nodiscard]] bool dense(const HashIndex& index) const { return dense_every_ > 0 && index.layer % dense_every_ == 0; }

  /// [head_dim, tables * bits], the same for all layers and heads; the last asked for is at hand.
  [[nodiscard]] at::Tensor directions(int64_t dim) const {
    static thread_local std::vector<int64_t> known;
    static thread_local at::Tensor drawn;
    const std::vector<int64_t> asked = {dim, tables_, bits_, seed_};
    if (asked != known) {
      const RandomStream draws(static_cast<uint64_t>(seed_), "magicpig directions");
      drawn = at::tensor(draw_normal(dim * tables_ * bits_, draws)).view({dim, tables_ * bits_});
      known = asked;
    }
    return drawn;
  }

  /// Codes of rows [n, dim], [n, tables]: bit i is whether the row is on the positive side of the table's direction i.
  [[nodiscard]] std::vector<uint16_t> codes_of(const at::Tensor& rows, const at::Tensor& directions) const {
    constexpr int64_t kRows = 512;  // at a time
    std::vector<uint16_t> codes;
    codes.reserve(static_cast<size_t>(rows.size(0) * tables_));
    for (int64_t first = 0; first < rows.size(0); first += kRows) {
      const at::Tensor some = rows.narrow(0, first, std::min(kRows, rows.size(0) - first));
      const at::Tensor sides = some.matmul(directions).contiguous();
      const float* side = sides.const_data_ptr<float>();
      for (int64_t i = 0; i < some.size(0) * tables_; ++i, side += bits_) {
        uint32_t code = 0;
        for (int64_t bit = 0; bit < bits_; ++bit) code |= (side[bit] > 0 ? 1U : 0U) << bit;
        codes.push_back(static_cast<uint16_t>(code));
      }
    }
    return codes;
  }

  /// Entries that share the query's code in at least two tables, ascending.
  [[nodiscard]] std::vector<int32_t> colliding(const HashIndex& index, int64_t kv_head, const float* q,
                                               int64_t dim) const {
    const at::Tensor query = at::from_blob(const_cast<float*>(q), {1, dim});
    const std::vector<uint16_t> own = codes_of(query, index.directions);
    const uint16_t* codes = index.codes[kv_head].data();
    std::vector<int32_t> list;
    for (int64_t entry = index.first; entry < index.end; ++entry, codes += tables_) {
      int32_t shared = 0;
      for (int64_t table = 0; table < tables_; ++table) shared += codes[table] == own[table] ? 1 : 0;
      if (shared >= 2) list.push_back(static_cast<int32_t>(entry));
    }
    return list;
  }

  /// -log(u + 1e-4) of listed entries.
  [[nodiscard]] std::vector<float> biases_of(const HashIndex& index, const EntrySegment& entries, int64_t kv_head,
                                             const float* q, const std::vector<int32_t>& list) const {
    const int64_t d = entries.shape().head_dim;
    const float* const mean = index.means.data() + kv_head * d;
    double squares = 0;  // of the query
    for (int64_t c = 0; c < d; ++c) squares += double{q[c]} * q[c];
    std::vector<float> key(static_cast<size_t>(d)), biases;
    for (const int32_t entry : list) {
      entries.read_some(kv_head, entry, 1, key.data(), nullptr, d);
      double dot = 0, keys = 0;
      for (int64_t c = 0; c < d; ++c) {
        const double centred = double{key[c]} - mean[c];
        dot += q[c] * centred;
        keys += centred * centred;
      }
      const double lengths = std::sqrt(keys * squares);
      biases.push_back(bias(lengths == 0 ? 0 : std::clamp(dot / lengths, -1.0, 1.0)));
    }
    return biases;
  }
  [[nodiscard]] float bias(double cosine) const {
    const double p = std::pow(1 - std::acos(cosine) / std::numbers::pi, bits_);
    const auto tables = static_cast<double>(tables_);
    const double u = 1 - std::pow(1 - p, tables) - tables * p * std::pow(1 - p, tables - 1);
    return static_cast<float>(-std::log(u + 1e-4));
  }

  int64_t bits_ = 10;
  int64_t tables_ = 150;
  int64_t sinks_ = 4;
  int64_t window_ = 64;
  int64_t dense_every_ = 16;
  int64_t seed_ = 0;
};

KVARENA_RETRIEVER(MagicPig, {.name = "magicpig",
                             .title = "MagicPIG",
                             .summary = "Samples entries by hash collisions and weighs them by their probability.",
                             .paper = "arXiv:2410.16179, section 4"});

}  // namespace
}  // namespace kvarena
