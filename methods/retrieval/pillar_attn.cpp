#include <numeric>

#include "harness/method/entry_scores.h"
#include "harness/method/head_lists.h"

namespace kvarena {
namespace {

/// Attention probabilities of the last full step and the queries that the next one will average over.
struct PillarState final : public LayerIndex {
  PillarState(HeadLists<float> probabilities, const LedgerPtr& ledger)
      : scores(std::move(probabilities)), queries(LedgerAllocator<float>(ledger)) {}

  HeadLists<float> scores;      // [kv_heads][entries of the last full step]
  LedgerVector<float> queries;  // [count, q_heads, head_dim] since then, oldest first
  int64_t refreshed = 0;        // entries at the last full step, 0 before the first
  int64_t averaged = 0;         // queries that it averaged over: the newest entries of it
  int64_t stayed = 0;           // entries once drafts of that step were taken back

  [[nodiscard]] int64_t bytes() const override {
    return scores.bytes() + static_cast<int64_t>(queries.capacity() * sizeof(float));
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<PillarState>(HeadLists(scores, ledger), ledger);
    copy->queries.assign(queries.begin(), queries.end());
    copy->refreshed = refreshed;
    copy->averaged = averaged;
    copy->stayed = stayed;
    return copy;
  }
};

/// Selection by the last full step.  Every `stride` + 1 steps one attends to everything, and then
///   s[j,i] = mean over the group's query heads and the queries since the full step before, this one's included, that
///            see i, of their attention over all entries
/// chooses the (budget - queries averaged over) best entries before those queries; their own entries and all later ones
/// are attended too. The set holds until the next full step. In the authors' system the full steps are the
/// verifications of drafts made in between (refresh = "runs": those drafts that were accepted count in the budget, the
/// average is over all that were verified); as a method by itself it emits what its sparse steps say.
/// Zhao et al. 2025, arXiv:2512.01278, section 4; serve/request/kv_cache_ptr/pillar.py of the authors' code. Their
/// kernels are CUDA; the test restates the average.
class PillarAttention final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("refresh", refresh_)
        .one_of({"steps", "runs"})
        .doc("full steps: every stride + 1 of them, or the passes over several tokens, as a verifier's are");
    p("stride", stride_).min(1).doc("steps on one selection, between two that attend to everything");
    p("min_tokens", min_tokens_).min(0).doc("a budget of at least so many entries");
  }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    return std::make_unique<PillarState>(HeadLists<float>(shape.kv_heads, ledger), ledger);
  }

  void extend(LayerIndex& index, const EntrySegment& /*entries*/, int64_t end) const override {
    auto& state = static_cast<PillarState&>(index);
    if (state.stayed == 0) state.stayed = end - 1;  // the first step since the full one
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& /*queries*/,
                   const Candidates& among) const override {
    const auto& state = static_cast<const PillarState&>(index);
    if (full_step(state, entries.entries(0))) return {};
    Candidates before = among;
    before.last = std::clamp(state.refreshed - state.averaged, among.first, among.last);
    const int64_t since = by_runs() ? state.stayed - before.last : state.averaged;
    before.count = std::clamp<int64_t>(std::max(among.budget, min_tokens_) - since, 0, before.size());
    Selection selection;
    for (int64_t head = 0; head < state.scores.heads(); ++head) {
      auto& list = selection.lists.emplace_back(best_candidates(state.scores[head], before, "pillar_attn"));
      const auto chosen = static_cast<int64_t>(list.size());
      list.resize(static_cast<size_t>(chosen + among.last - before.last));
      std::iota(list.begin() + chosen, list.end(), static_cast<int32_t>(before.last));
    }
    return selection;
  }

  void observe(LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries) const override {
    auto& state = static_cast<PillarState&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t row = shape.q_heads * shape.head_dim;
    if (by_runs() && queries.q_len == 1) return;
    for (int64_t t = 0; t < queries.q_len; ++t) {
      const float* q = queries.q + t * queries.q_stride;
      state.queries.insert(state.queries.end(), q, q + row);
    }
    const int64_t n = entries.entries(0);
    if (queries.q_len == 1 && !full_step(state, n)) return;
    state.averaged = std::min(n, static_cast<int64_t>(state.queries.size()) / row);
    state.refreshed = n;
    state.stayed = 0;
    for (int64_t head = 0; head < shape.kv_heads; ++head) average(state, entries, head);
    state.queries.clear();
  }

 private:
  [[nodiscard]] bool by_runs() const { return refresh_ == "runs"; }
  [[nodiscard]] bool full_step(const PillarState& state, int64_t entries) const {
    return state.refreshed == 0 || (!by_runs() && entries - state.refreshed > stride_);
  }

  static void average(PillarState& state, const EntrySegment& entries, int64_t head) {
    const LayerShape& shape = entries.shape();
    const int64_t row = shape.q_heads * shape.head_dim;
    std::vector<double> sums(static_cast<size_t>(state.refreshed));
    for (int64_t t = 0; t < state.averaged; ++t) {
      const int64_t visible = state.refreshed - (state.averaged - 1 - t);
      std::vector<float> own(static_cast<size_t>(shape.group() * visible));
      const LayerQueries one{.q = state.queries.data() + t * row, .q_len = 1, .q_stride = row};
      inner_products(entries, one, head, own);
      attention_rows(own, shape, head);
      for (int64_t voter = 0; voter < shape.group(); ++voter) {
        for (int64_t i = 0; i < visible; ++i) sums[i] += own[voter * visible + i];
      }
    }
    LedgerVector<float>& scores = state.scores[head];
    scores.resize(sums.size());
    for (int64_t i = 0; i < state.refreshed; ++i) {
      const int64_t seen_by = std::min(state.averaged, state.refreshed - i) * shape.group();
      scores[i] = static_cast<float>(sums[i] / static_cast<double>(seen_by));
    }
  }

  std::string refresh_ = "steps";
  int64_t stride_ = 8;
  int64_t min_tokens_ = 0;
};

KVARENA_RETRIEVER(PillarAttention, {.name = "pillar_attn",
                                    .title = "PillarAttn",
                                    .summary = "Attends to what the last full step attended to, for several steps.",
                                    .paper = "arXiv:2512.01278, section 4"});

}  // namespace
}  // namespace kvarena
