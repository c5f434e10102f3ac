#include <algorithm>
#include <numeric>

#include "harness/cache/indexed_segment.h"
#include "harness/core/error.h"
#include "harness/method/entry_scores.h"

namespace kvarena {
namespace {

/// Entries that all heads of the layers to come attend to in the step under way.
struct SharedChoice final : public LayerIndex {
  explicit SharedChoice(const LedgerPtr& ledger) : list(LedgerAllocator<int32_t>(ledger)) {}
  LedgerVector<int32_t> list;  // ascending

  [[nodiscard]] int64_t bytes() const override { return static_cast<int64_t>(list.capacity() * sizeof(int32_t)); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<SharedChoice>(ledger);
    copy->list.assign(list.begin(), list.end());
    return copy;
  }
};

/// One choice for all heads and for many layers.  In each step two layers attend to everything and choose: of the
/// budget k, `recent_share` goes to the newest entries, `sinks` of them to the first ones, and the rest m to the first
/// m different entries of the query heads' own orders by q.k, read rank by rank over all heads. All heads of the layers
/// behind attend to that choice, up to the second choosing layer; the first `dense_layers` attend to everything. Keys
/// stay where they are. The newest entry is attended whatever the budget. Yang, Zhang, Jain, Cao, Yuan, Chen, Jia,
/// Netravali 2025, arXiv:2508.07101, section 3; DerrickYLJ/LessIsMore, whose runs choose anew at layer 12 of 36 with
/// recent_share 0.25, sinks 4 and two dense layers.
class LessIsMore final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    budget_.parameters(p);
    p("recent_share", recent_share_).above(0).max(1).doc("share of the budget for the newest and the first entries");
    p("sinks", sinks_).min(0).doc("first entries, where the share has room for them");
    p("dense_layers", dense_layers_).min(0).doc("first layers, which attend to everything; the next one chooses");
    p("choose_again", choose_again_).min(1).doc("the layer that chooses again; absent: a third of the layers");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    budget_.check(place, problems);
    if (!choose_again_ || *choose_again_ > dense_layers_) return;
    problems.push_back(describe({.place = place + ".choose_again",
                                 .found = std::to_string(*choose_again_),
                                 .expected = "a layer behind the first that chooses, dense_layers"}));
  }
  HookAccess reach() const override { return HookAccess::views; }

  void select(LayerContext& layer, const LayerQueries& queries) const override {
    const EntrySegment& entries = layer.cache.tail();
    const LayerShape& shape = entries.shape();
    const int64_t n = entries.entries(0), budget = budget_.capacity(n, shape, layer.budgeted());
    if (layer.request == nullptr || queries.q_len > 1 || budget >= n || shape.window > 0) return;
    KvCache& request = *layer.request;
    const int64_t first = full_layer(request, dense_layers_);
    if (layer.layer < first) return;
    if (layer.layer == first || layer.layer == full_layer(request, choose_again_.value_or(layer.layers / 3))) {
      if (!request.index) request.index = std::make_unique<SharedChoice>(request.ledger);
      const std::vector<int32_t> list = choose(entries, queries, budget);
      static_cast<SharedChoice&>(*request.index).list.assign(list.begin(), list.end());
      return;
    }
    const auto& chosen = static_cast<const SharedChoice&>(*request.index).list;
    const std::vector<std::vector<int32_t>> lists(static_cast<size_t>(shape.kv_heads),
                                                  std::vector<int32_t>(chosen.begin(), chosen.end()));
    layer.activity.entries_skipped += shape.kv_heads * (n - std::ssize(chosen));
    layer.cache.view = std::make_unique<IndexedSegment>(entries, lists, layer.cache.ledger());
  }

 private:
  /// The first layer from `from` on that it acts on and that sees all entries.
  [[nodiscard]] int64_t full_layer(const KvCache& request, int64_t from) const {
    const auto left_out = [&](const LayerShape& shape) { return shape.window > 0 || !layers().holds(from, shape); };
    while (from < std::ssize(request.layers) && left_out(request.layers[from].shape())) ++from;
    return from;
  }

  /// Ascending entries for all heads.
  [[nodiscard]] std::vector<int32_t> choose(const EntrySegment& entries, const LayerQueries& queries,
                                            int64_t budget) const {
    const int64_t n = entries.entries(0);
    const auto middle = static_cast<int64_t>((1 - recent_share_) * static_cast<double>(budget) + 1e-9);
    const int64_t rest = budget - middle, sinks = rest < sinks_ ? 0 : std::min(sinks_, rest - 1);
    const int64_t recent = n - (rest - sinks);  // where the newest begin
    std::vector<int32_t> list(static_cast<size_t>(sinks));
    std::iota(list.begin(), list.end(), 0);
    const std::vector<int32_t> shared = first_different(entries, queries, sinks, recent, middle);
    list.insert(list.end(), shared.begin(), shared.end());
    std::ranges::sort(list);
    for (int64_t i = recent; i < n; ++i) list.push_back(static_cast<int32_t>(i));
    return list;
  }

  /// The first `count` different entries of [first, last): the best of each query head, then the second best, ...
  static std::vector<int32_t> first_different(const EntrySegment& entries, const LayerQueries& queries, int64_t first,
                                              int64_t last, int64_t count) {
    const LayerShape& shape = entries.shape();
    count = std::min(count, last - first);
    std::vector<std::vector<int32_t>> orders;  // [q_heads] of [count], the best first
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<float> scores(static_cast<size_t>(shape.group() * last));
      inner_products(entries, queries, head, scores);
      require_numbers(scores, "less_is_more");
      for (int64_t row = 0; row < shape.group(); ++row) {
        std::vector<int32_t>& order = orders.emplace_back(static_cast<size_t>(last - first));
        std::iota(order.begin(), order.end(), static_cast<int32_t>(first));
        const float* const own = scores.data() + row * last;
        const auto better = [&](int32_t a, int32_t b) { return own[a] > own[b] || (own[a] == own[b] && a < b); };
        std::ranges::nth_element(order, order.begin() + count, better);
        std::sort(order.begin(), order.begin() + count, better);
      }
    }
    std::vector<bool> taken(static_cast<size_t>(last));
    std::vector<int32_t> list;
    for (int64_t rank = 0; rank < count; ++rank) {
      for (const std::vector<int32_t>& order : orders) {
        if (std::ssize(list) == count) return list;
        if (taken[order[rank]]) continue;
        taken[order[rank]] = true;
        list.push_back(order[rank]);
      }
    }
    return list;
  }

  Budget budget_;
  double recent_share_ = 0.25;
  int64_t sinks_ = 4;
  int64_t dense_layers_ = 2;
  std::optional<int64_t> choose_again_;
};

KVARENA_METHOD(LessIsMore, Family::retrieval,
               {.name = "less_is_more",
                .title = "LessIsMore",
                .summary = "Two layers choose for all heads and layers, by the union of heads and the newest entries.",
                .paper = "arXiv:2508.07101, section 3"});

}  // namespace
}  // namespace kvarena
