#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "harness/cache/attend_plan.h"
#include "harness/cache/entry_source.h"
#include "harness/cache/known_choice.h"
#include "harness/cache/overlay_view.h"
#include "harness/core/error.h"
#include "harness/method/codec.h"
#include "harness/storage/entry_store.h"
#include "kernels/top_k/top_k.h"

namespace kvarena {
namespace {

using storage::EntryStore;

/// A layer's exact entries beside the low-bit copy.
struct Fetched final : public LayerIndex, public EntrySource, public KnownChoice {
  uint64_t source = new_version();    // of C_K, and of what stays of it
  std::unique_ptr<EntryStore> store;  // C, every entry, exact, behind the device
  EntryLists chosen;                  // K, [kv_heads] indices of packed entries, ascending; empty: nothing is fetched
  EntryLists positions;               // theirs
  EntryLists missing;                 // of them, those that `held` has not
  bool ahead = false;                 // a step before
  bool under_way = false;             // chosen, and not yet entries
  Buffer rows;                        // where the missing ones arrive
  storage::Transfer transfer;         // dies before the rows
  std::optional<EntrySegment> exact;  // C_K
  std::optional<EntrySegment> held;   // C_K of the step before, for what is chosen again
  std::vector<float> scores;          // [kv_heads, entries] between a pass's attention and the choice from it

  [[nodiscard]] bool known(const KvCache& /*cache*/) const override { return ahead; }
  [[nodiscard]] uint64_t source_of(const Segment& shown) const override {
    return exact && &shown == &*exact ? source : 0;
  }
  [[nodiscard]] int64_t bytes() const override {
    int64_t total = rows.bytes() + (exact ? exact->bytes() : 0) + (held ? held->bytes() : 0);
    for (const EntryLists* lists : {&chosen, &positions, &missing}) {
      for (const auto& list : *lists) total += static_cast<int64_t>(list.capacity() * sizeof(int32_t));
    }
    return total;
  }
  /// Copies what is here; the copy asks anew for what was on its way.
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<Fetched>();
    if (store) copy->store = store->clone(ledger);
    copy->ahead = ahead;
    copy->chosen = chosen;
    copy->positions = positions;
    copy->under_way = under_way;
    if (exact) copy->exact.emplace(std::move(static_cast<EntrySegment&>(*exact->clone(ledger))));
    if (held) copy->held.emplace(std::move(static_cast<EntrySegment&>(*held->clone(ledger))));
    return copy;
  }
  void forget() {
    transfer = {};
    rows = {};
    exact.reset();
    chosen.clear();
    positions.clear();
    missing.clear();
    under_way = false;
  }
};

/// The whole cache C lies exact on a slower tier, a low-bit copy C' on the device. Of the packed entries, the k with
/// the largest attention a = mean over h in group j of softmax(q k / sqrt(d)) come back in exact form and take the
/// place of their copies, so that a query attends to C' with C_K in it (eq. 1); the newest entries, which the codec has
/// not packed, are exact anyway.
///
/// speculative: a pass feeds the present token and a guess at the next. Both attend with K_t; the guess's row chooses
/// K_{t+1}, whose transfer then runs while the model goes on, and its own entries are dropped. A pre-decoding step with
/// the first token chooses K_1 (appendix A, algorithms 2 and 3; algorithm 3 prints Pre-fetch(C_{K_t}) for what the text
/// calls C_{K_{t+1}}, and appends the guess's entries, which would leave a wrong token in the cache).
/// Otherwise (table 4) a layer's attention is computed twice: over C' to choose, then, once the chosen have come, with
/// them; nothing is hidden.
/// elastic: what is chosen again stays on the device, and only the others come. The paper speaks of fetching the top k.
/// Jie et al. 2025, arXiv:2503.16163, section 3.3; k = 64 over 1-bit KIVI with 64 tokens in 16 bit (section 4.1). No
/// code by the authors is public; the test restates the algorithms in float64.
class SpeCache final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    p("k", k_).min(0).doc("entries of each kv head that come back in exact form");
    p("copy", copy_).doc("the codec of the copy that stays on the device");
    p("speculative", speculative_)
        .doc("fetch for the next step while this one computes; otherwise fetch and recompute");
    p("gqa", gqa_).one_of({"mean", "max"}).doc("how a group's query heads are reduced to a score of its kv head");
    p("elastic", elastic_).doc("what is chosen again stays: fetch only entries that were not chosen a step before");
    p("tier", tier_).one_of({"host", "disk"}).doc("where the exact cache lies");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_within(copy_, place + ".copy", problems);
    if (dynamic_cast<const CodecMethod*>(&*copy_) != nullptr) return;
    problems.push_back(describe({.place = place + ".copy.name",
                                 .found = fmt::format("\"{}\"", copy_.name()),
                                 .expected = "a codec, which packs entries in fewer bits",
                                 .action = "`kvarena methods` lists all"}));
  }

  Needs needs() const override { return copy_->needs(); }
  bool looks_ahead() const override { return speculative_; }
  /// A layer is quantised and offloaded once it is computed, which frees its room for the next (section 3.3).
  bool compresses_by_layer() const override { return copy_->compresses_by_layer(); }
  HookAccess reach() const override { return HookAccess::views; }

  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const override {
    for (LayerContext& layer : layers) {
      KVARENA_ASSERT(layer.model != nullptr && layer.model->tiers != nullptr, "a machine without tiers");
      auto fetched = std::make_unique<Fetched>();
      fetched->ahead = speculative_;
      fetched->store = std::make_unique<EntryStore>(layer.cache.shape(), layer.cache.ledger(), layer.model->tiers,
                                                    tier_ == "disk" ? Tier::disk : Tier::host);
      layer.cache.index = std::move(fetched);
      offload(layer);
      store(layer).settle();
    }
    copy_->compress_all(layers, seen);
  }

  void select(LayerContext& layer, const LayerQueries& queries) const override {
    if (!speculative_) {
      const std::vector<float> lse = denominators(layer.cache, queries);
      choose(layer, scores(layer.cache, queries, lse.data(), nullptr));
    }
    Fetched& fetched = of(layer);
    arrive(layer, fetched);
    if (fetched.exact) layer.cache.view = view(layer.cache, fetched);
  }

  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override {
    Fetched& fetched = of(layer);
    const auto seen = fetched.exact ? view(layer.cache, fetched) : nullptr;
    if (speculative_) fetched.scores = scores(layer.cache, queries, lse, seen.get());
    if (elastic_) fetched.held = std::move(fetched.exact);
    fetched.forget();
  }

  void after_append(LayerContext& layer) const override {
    offload(layer);
    copy_->after_append(layer);
    Fetched& fetched = of(layer);
    if (!fetched.scores.empty()) choose(layer, std::exchange(fetched.scores, {}));
  }

 private:
  static Fetched& of(const LayerContext& layer) { return static_cast<Fetched&>(*layer.cache.index); }
  static EntryStore& store(const LayerContext& layer) { return *of(layer).store; }

  /// Sends the entries that joined the tail to where the exact cache lies.
  static void offload(LayerContext& layer) {
    const EntrySegment& tail = layer.cache.tail();
    const int64_t n = tail.entries(0);
    if (n == 0) return;
    EntryStore& exact = store(layer);
    const int64_t sent = exact.offloaded_bytes();
    const int64_t fresh = tail.position(0, n - 1) + 1 - exact.entries();
    exact.append(tail, n - fresh, fresh);
    layer.activity.traffic.offloaded_bytes += exact.offloaded_bytes() - sent;
  }

  static std::unique_ptr<OverlayView> view(const LayerCache& cache, const Fetched& fetched) {
    return std::make_unique<OverlayView>(cache, fetched.chosen, *fetched.exact);
  }

  /// Softmax denominators of an attention over the copy alone: [q_len, q_heads].
  static std::vector<float> denominators(const LayerCache& cache, const LayerQueries& queries) {
    const LayerShape& shape = cache.shape();
    const int64_t rows = queries.q_len * shape.q_heads;
    std::vector<float> memory(static_cast<size_t>(rows * (shape.head_dim + 2)));
    kernels::AttentionState state{.out = memory.data(),
                                  .max = memory.data() + rows * shape.head_dim,
                                  .sum = memory.data() + rows * (shape.head_dim + 1)};
    kernels::init_attention(state, queries.q_len, shape.q_heads, shape.head_dim, shape.sinks);
    attend(cache.plan(queries), state);
    std::vector<float> lse(static_cast<size_t>(rows));
    kernels::finish_attention(state, queries.q_len, shape.q_heads, shape.head_dim, lse.data());
    return lse;
  }

  /// Attention of the last query to each of the layer's entries, in the order of segments, over what the pass attended
  /// to: [kv_heads, entries].
  std::vector<float> scores(const LayerCache& cache, const LayerQueries& queries, const float* lse,
                            const OverlayView* seen) const {
    const LayerShape& shape = cache.shape();
    LayerQueries last = queries;
    last.q_len = 1;
    last.q += (queries.q_len - 1) * queries.q_stride;
    last.position += queries.q_len - 1;
    lse += (queries.q_len - 1) * shape.q_heads;
    const int64_t n = cache.entries(0);
    std::vector<float> heads(static_cast<size_t>(shape.q_heads * n));
    add_probabilities(seen != nullptr ? plan_of(*seen, last) : cache.plan(last), lse, heads.data(), n);
    std::vector<float> reduced(static_cast<size_t>(shape.kv_heads * n));
    const float share = 1.0F / static_cast<float>(shape.group());
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      float* row = &reduced[h / shape.group() * n];
      for (int64_t i = 0; i < n; ++i) {
        row[i] = gqa_ == "max" ? std::max(row[i], heads[h * n + i]) : row[i] + heads[h * n + i] * share;
      }
    }
    return reduced;
  }

  /// Picks the top k of the packed entries by [kv_heads, entries] and asks for them. Between steps the codec may have
  /// packed more; the order of entries stays.
  void choose(LayerContext& layer, const std::vector<float>& all) const {
    Fetched& fetched = of(layer);
    if (layer.cache.packed().empty() || k_ == 0) return;
    const PackedSegment* packed = layer.cache.packed().front();
    const LayerShape& shape = layer.cache.shape();
    const auto width = static_cast<int64_t>(all.size()) / shape.kv_heads;
    const int64_t first = entries_before(layer.cache, *packed);
    const int64_t n = packed->entries(0);
    const int64_t count = std::min(k_, n);
    fetched.forget();
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      std::vector<int32_t>& chosen = fetched.chosen.emplace_back(static_cast<size_t>(count));
      if (kernels::top_k(&all[h * width + first], n, count, chosen.data()) < 0) {
        fail({.place = fmt::format("specache: layer {}, kv head {}", layer.layer, h),
              .found = "a score that is not a number",
              .expected = "finite keys"});
      }
      const std::vector<int32_t> known = packed->positions(h);
      std::vector<int32_t>& positions = fetched.positions.emplace_back();
      for (const int32_t i : chosen) positions.push_back(known[i]);
    }
    fetch(layer, fetched);
  }

  /// Asks for the chosen entries that no step before has left.
  static void fetch(const LayerContext& layer, Fetched& fetched) {
    int64_t count = 0;
    for (size_t h = 0; h < fetched.positions.size(); ++h) {
      const auto there = fetched.held ? fetched.held->positions(static_cast<int64_t>(h)) : std::vector<int32_t>();
      std::vector<int32_t>& missing = fetched.missing.emplace_back();
      std::ranges::set_difference(fetched.positions[h], there, std::back_inserter(missing));
      count += static_cast<int64_t>(missing.size());
    }
    fetched.under_way = true;
    if (count == 0) return;
    fetched.rows = Buffer(layer.cache.ledger(), Tier::device, count * fetched.store->row_bytes());
    fetched.transfer = fetched.store->load(fetched.missing, fetched.rows.data());
  }

  static int64_t entries_before(const LayerCache& cache, const PackedSegment& packed) {
    int64_t before = 0;
    for (const auto& segment : cache.segments()) {
      if (segment.get() == &packed) break;
      before += segment->entries(0);
    }
    return before;
  }

  /// Waits for what was asked for and makes entries of it.
  static void arrive(LayerContext& layer, Fetched& fetched) {
    if (!fetched.under_way) return;
    if (fetched.missing.empty()) fetch(layer, fetched);  // a copy's
    const LayerShape& shape = layer.cache.shape();
    fetched.transfer.wait();
    layer.activity.traffic += fetched.transfer.as_load();
    EntrySegment arrived(shape, layer.cache.ledger());
    const std::byte* rows = fetched.rows.data();
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      storage::append_rows(shape, rows, fetched.missing[h], h, arrived);
      rows += static_cast<int64_t>(fetched.missing[h].size()) * fetched.store->row_bytes();
    }
    if (fetched.held) {
      fetched.exact.emplace(shape, layer.cache.ledger());
      for (int64_t h = 0; h < shape.kv_heads; ++h) join(fetched, arrived, h);
      fetched.held.reset();
    } else {
      fetched.exact = std::move(arrived);
      fetched.source = new_version();  // a copy on a device gets all of it
    }
    fetched.transfer = {};
    fetched.rows = {};
    fetched.under_way = false;
  }

  /// A head's chosen entries in their order, what came and what was held.
  static void join(Fetched& fetched, const EntrySegment& arrived, int64_t kv_head) {
    const std::vector<int32_t> held = fetched.held->positions(kv_head);
    const std::vector<int32_t>& missing = fetched.missing[kv_head];
    int64_t next = 0;  // of the missing ones
    for (const int32_t position : fetched.positions[kv_head]) {
      const int64_t to = fetched.exact->entries(kv_head);
      if (next < static_cast<int64_t>(missing.size()) && missing[next] == position) {
        fetched.exact->replace(kv_head, to, arrived, next++);
      } else {
        fetched.exact->replace(kv_head, to, *fetched.held, std::ranges::lower_bound(held, position) - held.begin());
      }
    }
  }

  int64_t k_ = 64;
  Nested<Method> copy_{R"({"bits":1,"group_size":32,"name":"kivi","residual_length":64})"};
  bool speculative_ = true;
  std::string gqa_ = "mean";
  bool elastic_ = false;
  std::string tier_ = "host";
};

KVARENA_METHOD(
    SpeCache, Family::retrieval,
    {.name = "specache",
     .title = "SpeCache",
     .summary = "Keeps a low-bit copy and brings back, ahead of time, the exact entries that the next token needs.",
     .paper = "arXiv:2503.16163, section 3.3"});

}  // namespace
}  // namespace kvarena
